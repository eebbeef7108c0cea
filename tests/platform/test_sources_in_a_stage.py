"""The etl stage as the embedded platform starts it: with what its sources take, and without."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executors.local import LocalExecutor
from services.settings import Settings
from services.wiring.parts import _of_sources
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest, StageSpec
from tests.servers.platform_process import until
from tests.servers.s3_server import SECRET, S3Server
from tests.support.secret_files import write_secret
from tests.unit.pipelines.recommender import films, ratings, spec

QUERY = "SELECT user AS userId, item AS movieId, rating, at FROM did"


@pytest.fixture
def recommender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecommenderSpec]:
    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("CREATE TABLE did (user INTEGER, item INTEGER, rating REAL, at REAL)")
        connection.executemany("INSERT INTO did VALUES (?, ?, ?, ?)", ratings(2000).rows())
    connection.close()
    write_secret(tmp_path / "databases.yaml", f"shop: sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
    films().write_parquet(tmp_path / "films.parquet")
    server = S3Server(tmp_path / "s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    data = {
        "interactions": {"query": QUERY, "from": "shop"},
        "items": {"uri": server.put(tmp_path / "films.parquet", "lake", "films.parquet"), "key": "movieId"},
    }
    yield spec(tmp_path, data=data)
    server.close()


def ended(folder: Path, recommender: RecommenderSpec, given: dict[str, dict[str, str]]) -> tuple[str, Manifest | None, str]:
    """How the attempt ended, what it published, and all that it printed."""
    store = FsspecArtifacts(str(folder / "artifacts"))
    executor = LocalExecutor(folder / "work", {"etl": "pipelines.stages.etl"}, only=given)
    try:
        one = StageSpec(stage="etl", run="r", attempt="r-etl-1", recommender=recommender, data_roots=("s3://lake",), artifacts=store.url)
        executor.start(one)
        until("etl has ended", lambda: (job := executor.observe("r-etl-1")) is not None and job.phase != "running", 120)
        job = executor.observe("r-etl-1")
        assert job is not None
        return job.phase, store.manifest("r-etl-1"), executor.log("r-etl-1")[0]
    finally:
        executor.close()


@pytest.mark.requirement("G-29")
def test_the_stage_that_reads_gets_what_its_sources_take(recommender: RecommenderSpec, tmp_path: Path) -> None:
    given = _of_sources(Settings.read({"data_roots": ["s3://lake"]}))
    assert set(given) >= {"EYAS_DATABASES", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"}
    phase, manifest, said = ended(tmp_path, recommender, {"etl": given})
    assert (phase, manifest is not None and manifest.failure) == ("succeeded", None), said
    assert manifest is not None and manifest.metrics["rows.train"] + manifest.metrics["rows.holdout"] == 2000
    assert SECRET not in said
    assert SECRET not in "".join(path.read_text() for path in (tmp_path / "work").rglob("*.json"))
    assert not (tmp_path / "work" / "r-etl-1" / "sources").exists()


def test_what_a_stage_was_not_given_it_does_not_have(recommender: RecommenderSpec, tmp_path: Path) -> None:
    whole = _of_sources(Settings.read({"data_roots": ["s3://lake"]}))
    without_keys = {name: whole[name] for name in ("AWS_ENDPOINT_URL", "EYAS_DATABASES")}
    phase, manifest, _ = ended(tmp_path, recommender, {"train": whole, "etl": without_keys})
    assert phase == "failed"
    assert manifest is not None and "access denied" in str(manifest.failure)


def test_keys_of_an_object_store_are_handed_on_only_where_there_is_a_root_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("EYAS_DATABASES", "/run/databases.yaml")
    assert _of_sources(Settings.read({"data_roots": ["/srv/data"]})) == {"EYAS_DATABASES": "/run/databases.yaml"}
    monkeypatch.delenv("EYAS_DATABASES")
    assert _of_sources(Settings.read({})) == {}
