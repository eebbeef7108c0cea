"""The etl stage by NVTabular, begun as the platform begins it: it publishes what the stage by polars publishes, on a Dask cluster too."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.features.engines.nvtabular.session import ROWS
from services.executors.local import LocalExecutor
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.stage import Manifest, StageSpec
from shared.domain.run import Job
from tests.servers.dask_cluster import DaskCluster
from tests.servers.platform_process import until
from tests.servers.triton_certificates import Authority
from tests.support.etl_stage import assert_same_etl
from tests.support.nvtabular_process import ROOT, python
from tests.support.onnx_encoders import WORDS, write_words
from tests.unit.pipelines.recommender import ratings, spec, write

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


def write_partitions(folder: Path) -> None:
    """Rows of three partitions."""
    folder.mkdir()
    write(folder, ratings(5 * ROWS // 2).with_columns(at=1.6e9 + pl.int_range(pl.len()) * 60.0))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    (tmp_path / "dask").mkdir()
    cluster = DaskCluster(tmp_path / "dask", 2)
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def platform(folder: Path, **variables: str) -> Iterator[Stages]:
    executor = LocalExecutor(
        folder / "work", {"etl": "pipelines.stages.etl"}, {"PYTHONPATH": str(ROOT)} | variables, engines={"nvtabular": python()}
    )
    try:
        yield Stages(executor, FsspecArtifacts(str(folder / "artifacts")), folder / "data")
    finally:
        executor.close()


@dataclass(frozen=True)
class Stages:
    executor: LocalExecutor
    store: FsspecArtifacts
    data: Path

    def start(self, engine: str, attempt: str, features: Sequence[Any] = FEATURES) -> None:
        recommender = spec(self.data, features=features, resources={"etl": {"engine": engine}})
        roots = (str(self.data),)
        stage = StageSpec(stage="etl", run=engine, attempt=attempt, recommender=recommender, data_roots=roots, artifacts=self.store.url)
        self.executor.start(stage)

    def job(self, attempt: str) -> Job:
        job = self.executor.observe(attempt)
        assert job is not None
        return job

    def ended(self, attempt: str) -> Job:
        return until("etl has ended", lambda: job if (job := self.job(attempt)).phase != "running" else None, 240)

    def manifest(self, attempt: str) -> Manifest:
        assert self.ended(attempt).phase == "succeeded", self.executor.log(attempt)[0]
        manifest = self.store.manifest(attempt)
        assert manifest is not None
        return manifest


@pytest.mark.requirement("C-10", "G-30")
def test_etl_publishes_the_same_whichever_engine_the_spec_chooses(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    write_words(tmp_path / "data" / "words.onnx")
    with platform(tmp_path) as stages:
        for engine in ("polars", "nvtabular"):
            stages.start(engine, f"{engine}-etl-1")
            stages.ended(f"{engine}-etl-1")
        assert_same_etl(stages.store, stages.manifest("polars-etl-1"), stages.manifest("nvtabular-etl-1"), tmp_path)


@pytest.mark.requirement("C-10")
@pytest.mark.timeout(600)
def test_a_killed_worker_of_a_dask_cluster_changes_nothing(tmp_path: Path, cluster: DaskCluster) -> None:
    write_partitions(tmp_path / "data")
    with platform(tmp_path, **cluster.variables) as stages:
        stages.start("polars", "polars-etl-1", FEATURES[:-1])
        ours = stages.manifest("polars-etl-1")
        stages.start("nvtabular", "nvtabular-etl-1", FEATURES[:-1])
        until("the workers are at work", lambda: [file for folder in cluster.sessions for file in folder.glob("counts-*/*")], 120)
        cluster.workers[0].send_signal(signal.SIGSTOP)
        time.sleep(15)  # longer than the other worker needs for its own tasks
        assert stages.job("nvtabular-etl-1").phase == "running", "the stopped worker had no task"
        cluster.workers[0].kill()
        assert_same_etl(stages.store, ours, stages.manifest("nvtabular-etl-1"), tmp_path, several_parts=True)
        assert cluster.sessions == []


@pytest.mark.requirement("C-10")
@pytest.mark.parametrize("moment", ["at work", "between"])
def test_a_stage_whose_scheduler_is_lost_ends_with_the_reason(tmp_path: Path, cluster: DaskCluster, moment: str) -> None:
    write_partitions(tmp_path / "data")
    with platform(tmp_path, **cluster.variables) as stages:
        stages.start("nvtabular", "nvtabular-etl-1", FEATURES[:-1])
        pattern = "counts-*/*" if moment == "at work" else "*"
        until("the stage has begun", lambda: [file for folder in cluster.sessions for file in folder.glob(pattern)], 120)
        cluster.scheduler.kill()
        job = stages.ended("nvtabular-etl-1")
        assert (job.phase, job.fault) == ("failed", "crash")
        assert f"EYAS_DASK is {cluster.variables['EYAS_DASK']}: the Dask cluster lost its scheduler" in job.reason
        log = stages.executor.log("nvtabular-etl-1")[0]
        assert "etl: unexpected error" not in log, "our own line has no traceback; Dask may log one of its own"
        assert job.reason.removeprefix("exit code 1: ") in log.splitlines()[-1]
        assert cluster.sessions == []


@pytest.mark.requirement("C-10")
def test_a_cluster_admits_only_its_own_certificate(tmp_path: Path, cluster: DaskCluster) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    stranger = Authority.create(tmp_path / "stranger").issue("dask").folder
    without = {"EYAS_DASK_TLS": str(tmp_path)}, f"{tmp_path}/tls.key: cannot be read"
    for variables, reason in (({"EYAS_DASK_TLS": str(stranger)}, "no Dask scheduler answers there"), without):
        with platform(tmp_path, **cluster.variables | variables) as stages:
            attempt = f"nvtabular-etl-{len(variables['EYAS_DASK_TLS'])}"
            stages.start("nvtabular", attempt)
            assert stages.ended(attempt).phase == "failed"
            assert reason in stages.executor.log(attempt)[0]
