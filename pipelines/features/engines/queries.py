"""Runs the lazy queries of the features: on CPUs by polars' streaming engine, or on a GPU by cudf-polars."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl

from shared.contracts.gpus import GPUS
from shared.domain.errors import Invalid

_APART = pl.QueryOptFlags(comm_subplan_elim=False)
"""Without shared subplans, which polars would hold in memory whole."""
_Result = TypeVar("_Result")


class Queries(Protocol):
    """`name` is the query's name in logs."""

    def collect(self, name: str, frames: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]: ...

    def write(self, name: str, frame: pl.LazyFrame, path: Path, **options: Any) -> None:
        """Writes a Parquet file; `options` are those of `sink_parquet`."""


class CpuQueries:
    def collect(self, name: str, frames: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]:
        return pl.collect_all(list(frames), engine="streaming", optimizations=_APART)

    def write(self, name: str, frame: pl.LazyFrame, path: Path, **options: Any) -> None:
        frame.sink_parquet(path, **options)


CPU = CpuQueries()


@dataclass
class GpuQueries:
    """Queries that the GPU engine cannot run fall back to the CPU; the engines must raise then.

    Statistics are computed on all GPUs. Rows are written by one GPU, because several write a folder of files, in no promised order.
    """

    engine: Any
    """Engine of one GPU."""
    log: logging.Logger
    several: Any = None
    """Engine of several GPUs for statistics; ends before `engine` uses a GPU."""
    on_gpu: int = 0
    """Queries that ran on the GPU."""
    fallen_back: list[str] = field(default_factory=list)

    def collect(self, name: str, frames: Sequence[pl.LazyFrame]) -> list[pl.DataFrame]:
        engine = self.several or self.engine
        return self._run(
            name, lambda: [frame.collect(engine=engine, optimizations=_APART) for frame in frames], lambda: CPU.collect(name, frames)
        )

    def write(self, name: str, frame: pl.LazyFrame, path: Path, **options: Any) -> None:
        self.end_several()
        self._run(name, lambda: frame.sink_parquet(path, engine=self.engine, **options), lambda: CPU.write(name, frame, path, **options))

    def _run(self, name: str, on_gpu: Callable[[], _Result], on_cpu: Callable[[], _Result]) -> _Result:
        try:
            result = on_gpu()
        except Exception as error:  # a fault of the data occurs again on the CPU
            self.fallen_back.append(name)
            self.log.warning("query: fell back to the CPU query=%s reason=%s", name, " ".join(str(error).split())[:300])
            return on_cpu()
        self.on_gpu += 1
        return result

    def end_several(self) -> None:
        if self.several is not None:
            self.several.shutdown()
            self.several = None

    def close(self) -> None:
        """Logs what ran where; raises Invalid if no query ran on the GPU."""
        self.log.info("queries: finished on_gpu=%d on_cpu=%d", self.on_gpu, len(self.fallen_back))
        if self.fallen_back and not self.on_gpu:
            raise Invalid(
                f"resources.etl.gpu: none of {len(self.fallen_back)} queries ran on the GPU (the log says why): leave gpu out, or use an "
                "image with cudf-polars"
            )


def open_queries(gpus: int, has_gpu: bool, log: logging.Logger) -> Queries:
    """Returns queries on a GPU if the spec asks for GPUs; without a GPU or cudf-polars on the CPU. In a Job both are required."""
    if not gpus:
        return CPU
    missing = "no GPU" if not has_gpu else "no cudf-polars" if importlib.util.find_spec("cudf_polars") is None else ""
    if not missing:
        return GpuQueries(pl.GPUEngine(raise_on_fail=True), log, _several() if gpus > 1 else None)
    if GPUS in os.environ:
        raise Invalid(f"resources.etl.gpu is {gpus}, but this environment has {missing}: use an image with both, or leave it out")
    log.warning("gpu: not used, etl runs on the CPU reason=%s", missing)
    return CPU


def _several() -> Any:
    """Starts cudf-polars' Dask workers on this machine, one for each GPU, and returns their engine."""
    dask = importlib.import_module("cudf_polars.engine.dask")
    return dask.DaskEngine(engine_options={"raise_on_fail": True})
