"""Table of GPU requests in the documents: for each stage, family, framework and engine, the image that runs it, or why it is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from docs.yaml_blocks import SMALLEST
from services.executors.jobsettings import JobSettings
from services.executors.local import local_faults
from shared.contracts.families import FAMILIES
from shared.contracts.gpus import RESOURCE_STAGES, stage_engine
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageName
from shared.contracts.strict import read
from shared.domain.errors import Invalid

CPU_IMAGES = {"polars": "eyas-pipelines", "tensorflow": "eyas-pipelines", "triton": "eyas-triton"}
GPU_IMAGES = {
    "torch": "eyas-torch-gpu",
    "tensorflow": "eyas-tensorflow-gpu",
    "xgboost": "eyas-torch-gpu",
    "polars": "eyas-etl-gpu",
    "triton": "eyas-triton-gpu",
}
WITH_GPUS = {"namespace": "eyas", "images": CPU_IMAGES | {"triton": "eyas-triton-gpu"}, "gpu_images": GPU_IMAGES}
PLATFORMS: dict[str, JobSettings | None] = {
    "chart, CPUs": read(JobSettings, {"namespace": "eyas", "images": CPU_IMAGES}, "jobs"),
    "chart, `images.gpu`, `triton.gpu`": read(JobSettings, WITH_GPUS, "jobs"),
    "this machine": None,
}
"""Where stages run, by column heading: on a cluster with these settings of the chart; None: on this machine, with every engine."""
_REJECTED = "rejected: "
_ON_THIS_MACHINE = "GPU, else CPU (warns)"


@dataclass(frozen=True)
class Case:
    """One way to compute a stage."""

    stage: StageName
    family: str = "mlp"
    framework: str = "tensorflow"
    engine: str = "polars"
    cuda: bool = False
    """Whether XGBoost grows the trees on CUDA."""

    @property
    def computed_by(self) -> str:
        if self.stage == "verify":
            return "FIL" if self.family == "gbm" else "onnxruntime"
        return self.engine if self.stage == "etl" else "xgboost, `device: cuda`" if self.cuda else self.framework

    def document(self, gpu: int) -> dict[str, Any]:
        """A GPU of the stage verify is requested by the device that serves."""
        resources: dict[str, Any] = {self.stage: {"gpu": gpu} if gpu and self.stage != "verify" else {}}
        if self.stage == "etl":
            resources["etl"]["engine"] = self.engine
        model = {"family": self.family, "framework": self.framework} | ({"params": {"device": "cuda"}} if self.cuda else {})
        serve = {"serve": {"device": "gpu"}} if gpu and self.stage == "verify" else {}
        return SMALLEST | {"model": model, "gates": [{"parity": 1e-4}], "resources": resources} | serve

    def outcome(self, platform: JobSettings | None, gpu: int) -> str:
        """Returns the image, with its GPU if it gets one; or why the spec is rejected."""
        try:
            spec = read(RecommenderSpec, self.document(gpu), "spec")
        except Invalid as error:
            return f"{_REJECTED}{str(error).removeprefix('spec: ')}"
        faults = stage_faults(platform, spec)
        if faults:
            return _REJECTED + "; ".join(f"`{field}`: {fault}" for field, fault in sorted(faults.items()))
        if platform is None:
            if gpu and self.stage == "verify":
                return "CPU (warns)"
            return "GPU" if self.cuda else _ON_THIS_MACHINE if gpu else "CPU"
        return platform.image(stage_engine(spec, self.stage), gpu) + (", 1 GPU" if gpu else "")


def stage_faults(platform: JobSettings | None, spec: RecommenderSpec) -> dict[str, str]:
    """Returns why a platform rejects a spec, by field; on this machine as if all engines were installed."""
    if platform is not None:
        return platform.faults(spec)
    installed = {"resources.etl.engine", "model.framework"}
    return {field: fault for field, fault in local_faults({}, spec).items() if field not in installed}


def cases() -> Iterator[Case]:
    for engine in ("polars", "nvtabular"):
        yield Case("etl", engine=engine)
    for family in FAMILIES:
        for framework in ("tensorflow", "torch", "jax"):
            yield Case("train", family, framework)
    yield Case("train", "gbm", cuda=True)
    for stage in RESOURCE_STAGES[2:4]:
        yield Case(stage)
    for family in FAMILIES:
        yield Case("verify", family)


def table() -> str:
    rows, reasons = [_TEXT], dict[str, int]()
    families: dict[tuple[str, ...], list[str]] = {}
    heads = [f"{name}{request}" for name in PLATFORMS for request in ("", ", `gpu: 1`")]
    rows.append(f"| stage | family | computed by | {' | '.join(heads)} |\n| --- | --- | --- |" + " --- |" * len(heads))
    for case in cases():
        outcomes = [case.outcome(platform, gpu) for platform in PLATFORMS.values() for gpu in (0, 1)]
        for index, outcome in enumerate(outcomes):
            if outcome.startswith(_REJECTED):
                outcomes[index] = f"rejected ({reasons.setdefault(outcome.removeprefix(_REJECTED), len(reasons) + 1)})"
        family = case.family if case.stage in ("train", "verify") else "any"
        families.setdefault((case.stage, case.computed_by, *outcomes), []).append(family)
    rows += [f"| {stage} | {', '.join(names)} | {' | '.join(cells)} |" for (stage, *cells), names in families.items()]
    return "\n".join([*rows, "\nReasons of rejections:\n", *(f"{number}. {reason}" for reason, number in reasons.items())]) + "\n"


_TEXT = """# GPU requests

Generated by `make format` from `shared/contracts/gpus.py`; `tests/unit/api/test_gpus.py` applies every row.

`resources.STAGE.gpu` requests GPUs and selects the engine's image of `images.gpu`. A spec is rejected if the stage cannot use them: its
family or its engine computes on the CPU, or the engine has no image for GPUs. Queries of cudf-polars fall back to the CPU one by one.
An operator's default (`jobs.stages.STAGE.gpu`) is ignored where the stage cannot use it, with a log line. The stage refit is treated as
train. A custom family (`module:Class`) follows its framework. In the rows of verify, `gpu: 1` is `serve: {device: gpu}`: Tritons with
GPUs (`triton.gpu` of the chart) then serve a network by onnxruntime and trees by FIL on GPUs, and verify runs as they do.
"""
