"""GPU requests: which stages can compute on a GPU, and in which images. The rule for `apply`, for Jobs and for the documents."""

from __future__ import annotations

from collections.abc import Collection

from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageName
from shared.domain.run import RESOURCES

LIBRARIES = {"nvtabular": "cuDF", "torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
"""For each engine that can compute on a GPU, the library that does it."""
GPUS = "EYAS_GPUS"
"""The environment variable with the number of GPUs that a Job was given. A stage that finds no library for them fails."""
RESOURCE_STAGES: tuple[StageName, ...] = ("etl", "train", "evaluate", "export", "verify")
"""Stages with an entry of their own in the spec's `resources`."""
_CPU_ONLY = {
    "evaluate": "scores are computed on the CPU, also those of a model that was trained on a GPU",
    "export": "the unit is written on the CPU",
    "verify": "Triton answers on the CPU",
}


def stage_engine(recommender: RecommenderSpec, stage: StageName, mode: str = "full") -> str:
    """The engine that computes a stage. Each engine has an image on a cluster."""
    if stage == "etl":
        return "polars" if mode == "compact" else recommender.resources.etl.engine
    return "triton" if stage == "verify" else recommender.model.framework


def gpu_fault(recommender: RecommenderSpec, stage: StageName, engines: Collection[str] | None, mode: str = "full") -> str:
    """Why a stage cannot use a GPU, and what to do; empty if it can. `engines`: those whose images have a library for GPUs; None: any."""
    model, engine = recommender.model, stage_engine(recommender, stage, mode)
    if stage in _CPU_ONLY:
        return f"{_CPU_ONLY[stage]}: leave it out"
    if engine == "polars":
        return "polars computes on the CPU: leave it out, or say engine: nvtabular"
    if RESOURCES.get(stage, stage) == "train" and model.params.no_steps is not None:
        return f"'{model.family}' is computed on the CPU: leave it out, or take a family of a neural network, such as neumf"
    if engines is None or engine in engines:
        return ""
    others = [name for name in LIBRARIES if name in engines and name not in model.params.not_on and name != "nvtabular"]
    if stage != "etl" and others:
        return f"the image for {engine} has no library for GPUs: leave it out, or say framework: {others[0]}"
    return f"the image for {engine} has no library for GPUs: leave it out, or ask the operator for one (images.pipelinesGpu of the chart)"


def gpu_faults(recommender: RecommenderSpec, engines: Collection[str] | None) -> dict[str, str]:
    """The requests of a spec that nothing could use, by field."""
    asking = [stage for stage in RESOURCE_STAGES if recommender.resources.of(stage).gpu]
    faults = {f"resources.{stage}.gpu": gpu_fault(recommender, stage, engines) for stage in asking}
    return {field: fault for field, fault in faults.items() if fault}
