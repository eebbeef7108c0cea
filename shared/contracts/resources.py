"""The spec's `resources`: what each stage may use."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shared.contracts.quantities import Cpu, Duration, Memory
from shared.contracts.strict import Strict
from shared.domain.run import RESOURCES

_LOCAL = "No effect on local stages, which use what they need."


class StageResources(Strict):
    timeout: Duration = Field(timedelta(hours=6), description="Time limit of the stage; then it is stopped and tried again.")
    cpu: Cpu | None = Field(None, description=f"Cores of the Job, such as 2 or 500m; the operator's default if absent. {_LOCAL}")
    memory: Memory | None = Field(
        None, description=f"Memory of the Job; a stage that needs more fails as out of memory. The operator's default if absent. {_LOCAL}"
    )
    gpu: int | None = Field(
        None,
        ge=0,
        le=64,
        description="Number of GPUs (`nvidia.com/gpu`) of the Job; the operator's default if absent. Rejected if the stage cannot use one "
        "(docs/gpus.md). A local stage uses all GPUs of the machine.",
    )
    gpu_memory: Memory | None = Field(
        None,
        description="Maximum memory of each GPU that TensorFlow uses, such as 8Gi, in a Job and locally. Absent: `EYAS_GPU_MEMORY` of the "
        "stage's environment, else all of it. No effect without a GPU.",
    )


def _processes(value: int) -> int:
    if value > 1:
        raise ValueError(f"set model.train.processes: {value} instead; each process has these resources")
    return value


class EtlResources(StageResources):
    engine: Literal["polars", "nvtabular"] = Field(
        "polars",
        description="Engine of the features; both compute the same state and the same features. `polars` runs on CPUs, or with `gpu` "
        "by cudf-polars on GPUs. `nvtabular` runs on Dask, on CPUs, and needs its own environment or image.",
    )


class TrainResources(StageResources):
    memory: Memory | None = Field(
        None,
        description="Memory of the Job; a stage that needs more fails as out of memory. The operator's default if absent. A quarter of "
        "it, at most 512 MiB, is for batches that are read ahead and shuffled, also in a local stage.",
    )
    processes: Annotated[int, AfterValidator(_processes)] = Field(
        1, ge=1, le=256, description="Only 1 is allowed: set `model.train.processes` instead; each pod of the Job has these resources."
    )


class Resources(Strict):
    etl: EtlResources = Field(EtlResources(), description="Reading, validation, features.")
    train: TrainResources = Field(TrainResources(), description="The model and its baseline; also the refit.")
    evaluate: StageResources = Field(StageResources(), description="Metrics on the holdout.")
    export: StageResources = Field(StageResources(), description="Export of the served unit.")
    verify: StageResources = Field(StageResources(), description="Parity and latency on a disposable server.")

    def of(self, stage: str) -> StageResources:
        resources: StageResources = getattr(self, RESOURCES.get(stage, stage))
        return resources
