"""Bad data ends its run with one clear line that names file, column or field; the platform goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import quick_spec, spec

Break = Callable[[pl.DataFrame], pl.DataFrame]


def nulls(column: str) -> Break:
    return lambda frame: frame.with_columns(pl.when(pl.int_range(pl.len()) % 10 < 3).then(None).otherwise(pl.col(column)).alias(column))


BROKEN: dict[str, tuple[Break | bytes | None, tuple[str, ...]]] = {
    "missing": (None, ("missing.parquet",)),
    "no-rows": (lambda frame: frame.head(0), ("no-rows.parquet",)),
    "one-user": (lambda frame: frame.with_columns(userId=pl.lit(1)), ("one-user.parquet", "userId")),
    "one-item": (lambda frame: frame.with_columns(movieId=pl.col("movieId").first()), ("one-item.parquet", "movieId")),
    "alike": (lambda frame: frame.with_columns(rating=pl.lit(5.0)), ("alike.parquet", "rating")),
    "null-user": (nulls("userId"), ("null-user.parquet", "userId", "30.0%")),
    "null-item": (nulls("movieId"), ("null-item.parquet", "movieId", "30.0%")),
    "nan-rating": (lambda frame: frame.with_columns(rating=pl.lit(float("nan"))), ("nan-rating.parquet", "rating")),
    "no-column": (lambda frame: frame.drop("timestamp"), ("no-column.parquet", "timestamp")),
    "text-user": (lambda frame: frame.with_columns(userId=pl.lit("ada")), ("text-user.parquet", "userId")),
    "unreadable": (b"PAR1 this is not Parquet PAR1", ("unreadable.parquet",)),
    "empty": (b"", ("empty.parquet",)),
}
TABLES: dict[str, tuple[Break, tuple[str, ...]]] = {
    "doubled-items": (lambda frame: pl.concat([frame, frame]), ("doubled-items.parquet", "repeat an earlier row's movieId", "50.0%")),
    "null-items": (nulls("movieId"), ("null-items.parquet", "movieId", "30.0%", "data.items.validate allows 5%")),
    "no-key": (lambda frame: frame.drop("movieId"), ("no-key.parquet", "movieId", "missing")),
}


@pytest.fixture
def folder(platform: PlatformProcess) -> Path:
    found = platform.data / "bad"
    found.mkdir(exist_ok=True)
    return found


def spec_of(platform: PlatformProcess, folder: Path, name: str) -> dict[str, Any]:
    document = spec(platform.data, name=name)
    document["data"]["interactions"]["uri"] = str(folder / f"{name}.parquet")
    return document


def failed(platform: PlatformProcess, run: str, words: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = platform.wait_for_run(run, "failed")
    assert found["reason"].startswith("etl: ")
    assert "\n" not in found["reason"]
    assert "Traceback" not in found["reason"]
    for word in words:
        assert word in found["reason"]
    assert found["stages"] == []
    assert found["attempt"] == 1, "what the user must mend is not tried again"
    return found


@pytest.mark.requirement("G-05")
@pytest.mark.timeout(600)
def test_runs_on_bad_interactions_fail_and_name_them_and_the_platform_goes_on(
    platform: PlatformProcess, folder: Path, subtests: pytest.Subtests
) -> None:
    good = pl.read_parquet(platform.data / "ratings.parquet")
    runs = {}
    for name, (damage, _) in BROKEN.items():
        if isinstance(damage, bytes):
            (folder / f"{name}.parquet").write_bytes(damage)
        elif damage is not None:
            damage(good).write_parquet(folder / f"{name}.parquet")
        runs[name] = platform.post("/v1/recommenders", spec_of(platform, folder, name))["run"]
    for name, (_, words) in BROKEN.items():
        with subtests.test(msg=name):
            failed(platform, runs[name], words)
    run = platform.post("/v1/recommenders", quick_spec(platform.data, name="after-bad-data"))["run"]
    assert platform.wait_for_run(run, "registered")["version"] == 1


def test_runs_on_bad_tables_of_items_fail_and_name_them(platform: PlatformProcess, folder: Path, subtests: pytest.Subtests) -> None:
    runs = {}
    for name, (damage, _) in TABLES.items():
        document = spec(platform.data, name=name)
        damage(pl.read_parquet(document["data"]["items"]["uri"])).write_parquet(folder / f"{name}.parquet")
        document["data"]["items"]["uri"] = str(folder / f"{name}.parquet")
        runs[name] = platform.post("/v1/recommenders", document)["run"]
    for name, (_, words) in TABLES.items():
        with subtests.test(msg=name):
            failed(platform, runs[name], words)
            if name != "no-key":
                (section,) = platform.get(f"/v1/runs/{runs[name]}/validation")["sections"]
                assert (section["name"], section["verdict"]) == ("items", "stop") and section["rows"]["quarantined"] > 0


def test_data_outside_the_operators_roots_is_refused(platform: PlatformProcess, folder: Path, subtests: pytest.Subtests) -> None:
    for uri in ("/etc/passwd", "../../../etc/passwd", "file:///etc/shadow", "/proc/self/environ"):
        with subtests.test(msg=uri):
            document = spec_of(platform, folder, "outside")
            document["data"]["interactions"]["uri"] = uri
            response = platform.client.post("/v1/recommenders", json=document)
            assert response.status_code == 422
            assert response.json()["detail"].startswith(f"data.interactions.uri: {uri}: not under an allowed data root")
            assert platform.client.get("/v1/recommenders/outside").status_code == 404


def test_a_link_out_of_the_roots_is_refused_by_the_run_too(platform: PlatformProcess, folder: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere.parquet", folder / "link.parquet"
    target.write_bytes((platform.data / "ratings.parquet").read_bytes())
    document = spec_of(platform, folder, "link")
    platform.post("/v1/recommenders", document, run="false")  # good as long as nothing is there
    link.symlink_to(target)
    assert platform.client.post("/v1/recommenders:validate", json=document).status_code == 422
    run = platform.post("/v1/recommenders/link/runs")["id"]
    assert "root" in platform.wait_for_run(run, "failed")["reason"]


def test_a_wrong_field_is_refused_before_anything_is_kept(platform: PlatformProcess, folder: Path) -> None:
    document = spec_of(platform, folder, "wrong") | {"modle": {}}
    response = platform.client.post("/v1/recommenders", json=document)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert "unknown field 'modle': did you mean 'model'?" in response.json()["detail"]
    assert platform.client.get("/v1/recommenders/wrong").status_code == 404
