"""GPU requests: which stages and which versions can use a GPU, and in which images. The same rule is used by `apply`, for Jobs and in the
documentation."""

from __future__ import annotations

from collections.abc import Collection

from shared.contracts.families import GbmParams
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageName
from shared.domain.run import RESOURCES

LIBRARIES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
"""GPU library of each framework."""
GPUS = "EYAS_GPUS"
"""Environment variable with a Job's number of GPUs. A stage without a library for them fails."""
RESOURCE_STAGES: tuple[StageName, ...] = ("etl", "train", "evaluate", "export", "verify")
"""Stages with their own entry in the spec's `resources`."""
_CPU_ONLY = {
    "evaluate": "scores are always computed on the CPU",
    "export": "the served unit is written on the CPU",
}
TRITON = "triton"


def stage_engine(recommender: RecommenderSpec, stage: StageName, mode: str = "full") -> str:
    """Returns the engine that computes a stage. On a cluster each engine has an image."""
    if stage == "etl":
        return "polars" if mode in ("compact", "forget") else recommender.resources.etl.engine
    if stage == "verify":
        return TRITON
    trains = RESOURCES.get(stage, stage) == "train"
    return "xgboost" if trains and on_cuda(recommender.model) else recommender.model.framework


def gpus_of(recommender: RecommenderSpec, stage: StageName, default: int) -> int:
    """Returns the number of GPUs that a stage asks for: the spec's, or one to verify a version for GPUs, or the operator's default."""
    gpus = recommender.resources.of(stage).gpu
    if gpus is None and stage == "verify" and recommender.serve.device == "gpu":
        return 1
    return default if gpus is None else gpus


def on_cuda(model: Model) -> bool:
    """Returns whether XGBoost grows the trees of a model on a GPU."""
    return isinstance(model.params, GbmParams) and model.params.device == "cuda"


def gpu_fault(recommender: RecommenderSpec, stage: StageName, gpus: int, engines: Collection[str] | None, mode: str = "full") -> str:
    """Returns why a stage cannot use GPUs; empty if it can. `engines`: those with an image for GPUs; None: any."""
    model, engine = recommender.model, stage_engine(recommender, stage, mode)
    if stage in _CPU_ONLY:
        return f"{_CPU_ONLY[stage]}; leave it out"
    if stage == "verify":
        fault = device_fault(recommender, engines)
        return fault if recommender.serve.device == "gpu" else "Triton runs on the CPU; leave it out, or set serve.device: gpu"
    if engine == "nvtabular":
        return "nvtabular computes on the CPU here; set engine: polars"
    if stage == "etl" and (mode in ("compact", "forget") or not recommender.resources.etl.gpu):
        return "this work of etl runs on the CPU; leave it out"
    if engine == "xgboost" and gpus > 1:
        return "xgboost computes on one GPU; set gpu: 1"
    if RESOURCES.get(stage, stage) == "train" and model.params.no_steps is not None and engine != "xgboost":
        other = "params: {library: xgboost, device: cuda}" if isinstance(model.params, GbmParams) else "a neural family such as neumf"
        return f"'{model.family}' is computed on the CPU; leave it out, or choose {other}"
    if engines is None or engine in engines:
        return ""
    frameworks = [name for name in LIBRARIES if name in engines and name not in model.params.not_on]
    if frameworks and engine in LIBRARIES:
        return f"{engine} has no image for GPUs here; leave it out, or set framework: {frameworks[0]}"
    return f"{engine} has no image for GPUs here; leave it out, or ask the operator for one (images.gpu of the chart)"


def device_fault(recommender: RecommenderSpec, engines: Collection[str] | None) -> str:
    """Returns why no GPU can serve the recommender's versions; empty if one can, or if the spec wants none."""
    params = recommender.model.params
    if recommender.serve.device == "cpu":
        return ""
    if params.no_steps is not None and not isinstance(params, GbmParams):
        return (
            f"scores of '{recommender.model.family}' are computed on the CPU; leave it out, or choose gbm or a neural family such as neumf"
        )
    if engines is not None and TRITON not in engines:
        return "the Tritons have no GPU; leave it out, or ask the operator for one (triton.gpu of the chart)"
    return ""


def gpu_faults(recommender: RecommenderSpec, engines: Collection[str] | None) -> dict[str, str]:
    """Returns the GPU requests of a spec that nothing can satisfy, by field."""
    requests = {stage: recommender.resources.of(stage).gpu or 0 for stage in RESOURCE_STAGES}
    faults = {f"resources.{stage}.gpu": gpu_fault(recommender, stage, gpus, engines) for stage, gpus in requests.items() if gpus}
    faults["serve.device"] = device_fault(recommender, engines)
    return {field: fault for field, fault in faults.items() if fault}
