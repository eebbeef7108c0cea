"""The etl stage by NVTabular, begun as the platform begins it: it publishes what the stage by polars publishes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from services.executors.local import LocalExecutor
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.stage import Manifest, StageSpec
from tests.servers.platform_process import until
from tests.support.nvtabular_process import ROOT, python
from tests.support.onnx_encoders import WORDS, write_words
from tests.unit.pipelines.recommender import spec, write

FEATURES = [
    {"categorify": ["userId", "movieId", "year"]},
    {"multi_hot": "genres", "separator": "|"},
    {"target_encode": {"of": "movieId"}},
    {"target_encode": {"of": "year"}},
    {"count_encode": ["userId", "movieId"]},
    {"lag": {"of": "at", "by": "userId"}},
    {"sequence": {"of": "movieId", "by": "userId", "length": 5}},
    {"cyclic": {"of": "at"}},
    {"calendar": {"of": "at", "parts": ["hour"]}},
    {"bucketise": "at", "quantiles": 5},
    {"vector": {"of": "movieId", "width": 4, "encode": {"column": "genres", "encoder": "words.onnx", "words": WORDS}}},
]


@pytest.mark.requirement("C-10", "G-30")
def test_etl_publishes_the_same_whichever_engine_the_spec_chooses(tmp_path: Path) -> None:
    interpreter = python()
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    write_words(tmp_path / "data" / "words.onnx")
    store = FsspecArtifacts(str(tmp_path / "artifacts"))
    executor = LocalExecutor(
        tmp_path / "work", {"etl": "pipelines.stages.etl"}, {"PYTHONPATH": str(ROOT)}, engines={"nvtabular": interpreter}
    )
    try:
        found = {engine: _run(executor, store, tmp_path / "data", engine) for engine in ("polars", "nvtabular")}
    finally:
        executor.close()
    ours, theirs = found["polars"], found["nvtabular"]
    assert sorted(ours.files) == sorted(theirs.files)
    unlike = [name for name in ours.files if ours.files[name].sha256 != theirs.files[name].sha256]
    assert set(unlike) <= {"train.parquet", "holdout.parquet"}  # of these the rows alone have to be equal
    for name in ("train.parquet", "holdout.parquet"):
        rows = {engine: pl.read_parquet(store.fetch(one.files[name], tmp_path / f"{engine}.{name}")) for engine, one in found.items()}
        assert rows["polars"].schema == rows["nvtabular"].schema
        assert any(column.startswith("f.") for column in rows["polars"].columns)
        assert_frame_equal(rows["polars"], rows["nvtabular"], rel_tol=1e-6, abs_tol=0)
    assert ours.facts["cardinalities"] == theirs.facts["cardinalities"]


def _run(executor: LocalExecutor, store: FsspecArtifacts, data: Path, engine: str) -> Manifest:
    attempt = f"{engine}-etl-1"
    recommender = spec(data, features=FEATURES, resources={"etl": {"engine": engine}})
    stage = StageSpec(stage="etl", run=engine, attempt=attempt, recommender=recommender, data_roots=(str(data),), artifacts=store.url)
    executor.start(stage)

    def ended() -> bool:
        job = executor.observe(attempt)
        assert job is not None
        assert job.phase in ("running", "succeeded"), (job, executor.log(attempt)[0])
        return job.phase == "succeeded"

    until("etl has ended", ended, 120)
    found = store.manifest(attempt)
    assert found is not None
    return found
