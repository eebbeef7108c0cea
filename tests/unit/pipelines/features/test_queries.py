"""Queries of the features on a GPU engine: what falls back to the CPU, and when the stage fails."""

from __future__ import annotations

import logging
import sys
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.features.engines.queries import CPU, GpuQueries, Queries, open_queries
from shared.contracts.gpus import GPUS
from shared.domain.errors import Invalid

LOG = logging.getLogger("test")
FRAMES = [
    pl.LazyFrame({"a": [1, 2, 2], "b": [1.0, 2.0, 3.0]}).group_by("a").agg(pl.col("b").sum()).sort("a"),
    pl.LazyFrame({"a": [[1, 2], []]}).select(pl.col("a").list.len()),
]


def results(queries: Queries, folder: Path) -> list[pl.DataFrame]:
    queries.write("rows", FRAMES[0], folder / "rows.parquet", row_group_size=1, compression_level=1)
    return [*queries.collect("counts", FRAMES), pl.read_parquet(folder / "rows.parquet")]


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("engine", ["streaming", pl.GPUEngine(raise_on_fail=True)], ids=["an engine that runs", "polars' GPU engine"])
def test_results_are_those_of_the_cpu_wherever_a_query_runs(tmp_path: Path, engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Polars' GPU engine fails on a machine without a GPU, with cudf-polars or without it; then each query falls back."""
    caplog.set_level(logging.INFO)
    queries = GpuQueries(engine, LOG)
    for result, expected in zip(results(queries, tmp_path), results(CPU, tmp_path), strict=True):
        assert_frame_equal(result, expected)
    if queries.on_gpu:
        assert queries.on_gpu == 2 and not queries.fallen_back
        queries.close()
        assert "queries: finished on_gpu=2 on_cpu=0" in caplog.text
        return
    assert queries.fallen_back == ["rows", "counts"]
    assert "query: fell back to the CPU query=counts reason=" in caplog.text
    with pytest.raises(Invalid, match=r"resources.etl.gpu: none of 2 queries ran on the GPU \(the log says why\): leave gpu out"):
        queries.close()


class Cluster:
    """An engine of several GPUs, computed by the CPU."""

    def __init__(self, **options: Any) -> None:
        assert options == {"engine_options": {"raise_on_fail": True}}
        self.alive, self.collected = True, 0

    def shutdown(self) -> None:
        self.alive = False


def test_several_gpus_compute_statistics_and_end_before_one_writes_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters: list[Cluster] = []
    monkeypatch.setattr("pipelines.features.engines.queries.importlib.util.find_spec", lambda name: name)
    module = SimpleNamespace(DaskEngine=lambda **options: clusters.append(Cluster(**options)) or clusters[0])
    monkeypatch.setitem(sys.modules, "cudf_polars.engine.dask", module)
    engines: list[Any] = []
    collect, sink = pl.LazyFrame.collect, pl.LazyFrame.sink_parquet

    def by_cpu(kind: Any, frame: pl.LazyFrame, *args: Any, engine: Any = "auto", **options: Any) -> Any:
        if engine != "streaming":
            engines.append((engine, clusters[0].alive))
        return kind(frame, *args, engine="streaming", **options)

    monkeypatch.setattr(pl.LazyFrame, "collect", partialmethod(lambda frame, *args, **options: by_cpu(collect, frame, *args, **options)))
    monkeypatch.setattr(pl.LazyFrame, "sink_parquet", partialmethod(lambda frame, *args, **options: by_cpu(sink, frame, *args, **options)))
    queries = open_queries(2, True, LOG)
    assert isinstance(queries, GpuQueries)
    counts = queries.collect("counts", FRAMES)
    queries.write("rows", FRAMES[0], tmp_path / "rows.parquet")
    queries.close()
    monkeypatch.undo()
    assert engines == [(clusters[0], True)] * 2 + [(queries.engine, False)]
    for result, expected in zip(
        [*counts, pl.read_parquet(tmp_path / "rows.parquet")], [*CPU.collect("counts", FRAMES), counts[0]], strict=True
    ):
        assert_frame_equal(result, expected)


def test_a_fault_of_the_data_is_raised_by_the_cpu(tmp_path: Path) -> None:
    queries = GpuQueries("streaming", LOG)
    broken = pl.LazyFrame({"a": ["x"]}).select(pl.col("a").cast(pl.Int64))
    with pytest.raises(pl.exceptions.InvalidOperationError, match="conversion from `str` to `i64` failed"):
        queries.collect("counts", [broken])
    assert queries.fallen_back == ["counts"]


def test_a_job_needs_what_it_asks_for_and_this_machine_uses_what_it_has(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pipelines.features.engines.queries.importlib.util.find_spec", lambda name: None)
    assert open_queries(0, True, LOG) is CPU
    assert open_queries(1, False, LOG) is CPU and "gpu: not used, etl runs on the CPU reason=no GPU" in caplog.text
    assert open_queries(1, True, LOG) is CPU and "reason=no cudf-polars" in caplog.text
    monkeypatch.setenv(GPUS, "1")
    for has_gpu, missing in ((False, "no GPU"), (True, "no cudf-polars")):
        with pytest.raises(Invalid, match=f"resources.etl.gpu is 1, but this environment has {missing}: use an image with both"):
            open_queries(1, has_gpu, LOG)
    monkeypatch.setattr("pipelines.features.engines.queries.importlib.util.find_spec", lambda name: name)
    assert isinstance(open_queries(1, True, LOG), GpuQueries)
