"""Bad data ends its run with one clear line that names file, column or field; the platform goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess
from tests.support.platform_world import spec

Break = Callable[[pl.DataFrame], pl.DataFrame]


def nulls(column: str) -> Break:
    return lambda frame: frame.with_columns(pl.when(pl.int_range(pl.len()) % 10 < 3).then(None).otherwise(pl.col(column)).alias(column))


BROKEN: dict[str, tuple[Break | None, tuple[str, ...]]] = {
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
}


def spec_of(platform: PlatformProcess, name: str) -> dict[str, Any]:
    document = spec(platform.data)
    document["data"]["interactions"]["uri"] = str(platform.data / f"{name}.parquet")
    return document | {"name": name}


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("name", BROKEN)
def test_a_run_on_bad_data_fails_and_names_it(platform: PlatformProcess, name: str) -> None:
    damage, said = BROKEN[name]
    if damage is not None:
        damage(pl.read_parquet(platform.data / "ratings.parquet")).write_parquet(platform.data / f"{name}.parquet")
    run = platform.post("/v1/recommenders", spec_of(platform, name))["run"]
    found = platform.wait_for_run(run, "failed")
    assert found["reason"].startswith("etl: ")
    assert "\n" not in found["reason"]
    assert "Traceback" not in found["reason"]
    for word in said:
        assert word in found["reason"]
    assert [attempt["attempt"] for attempt in found["stages"]] == []
    assert found["attempt"] == 1, "what the user must mend is not tried again"


TABLES: dict[str, tuple[Break, tuple[str, ...]]] = {
    "doubled-items": (lambda frame: pl.concat([frame, frame]), ("doubled-items.parquet", "repeat an earlier one's movieId", "50.0%")),
    "null-items": (nulls("movieId"), ("null-items.parquet", "movieId", "30.0%", "data.items.validate allows 5%")),
    "no-key": (lambda frame: frame.drop("movieId"), ("no-key.parquet", "movieId", "missing")),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_run_with_a_bad_table_of_items_fails_and_names_it(platform: PlatformProcess, name: str) -> None:
    damage, said = TABLES[name]
    document = spec(platform.data) | {"name": name}
    damage(pl.read_parquet(document["data"]["items"]["uri"])).write_parquet(platform.data / f"{name}.parquet")
    document["data"]["items"]["uri"] = str(platform.data / f"{name}.parquet")
    found = platform.wait_for_run(platform.post("/v1/recommenders", document)["run"], "failed")
    assert found["reason"].startswith("etl: ") and "\n" not in found["reason"] and found["attempt"] == 1
    for word in said:
        assert word in found["reason"]
    if name != "no-key":
        (section,) = platform.get(f"/v1/runs/{found['id']}/validation")["sections"]
        assert (section["name"], section["verdict"]) == ("items", "stop") and section["rows"]["quarantined"] > 0


@pytest.mark.parametrize(("name", "content"), [("unreadable", b"PAR1 this is not Parquet PAR1"), ("empty", b"")])
def test_a_run_on_an_unreadable_file_fails_and_names_it(platform: PlatformProcess, name: str, content: bytes) -> None:
    (platform.data / f"{name}.parquet").write_bytes(content)
    run = platform.post("/v1/recommenders", spec_of(platform, name))["run"]
    found = platform.wait_for_run(run, "failed")
    assert f"{name}.parquet" in found["reason"]
    assert found["attempt"] == 1


@pytest.mark.parametrize("uri", ["/etc/passwd", "../../../etc/passwd", "file:///etc/shadow", "/proc/self/environ"])
def test_data_outside_the_operators_roots_is_refused(platform: PlatformProcess, uri: str) -> None:
    document = spec_of(platform, "outside")
    document["data"]["interactions"]["uri"] = uri
    response = platform.client.post("/v1/recommenders", json=document)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(f"data.interactions.uri: {uri}: it doesn't lie under an allowed data root")
    assert platform.client.get("/v1/recommenders/outside").status_code == 404


def test_a_link_out_of_the_roots_is_refused_by_the_run_too(platform: PlatformProcess, tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere.parquet", platform.data / "link.parquet"
    target.write_bytes((platform.data / "ratings.parquet").read_bytes())
    platform.post("/v1/recommenders", spec_of(platform, "link"), run="false")  # good as long as nothing is there
    link.symlink_to(target)
    assert platform.client.post("/v1/recommenders:validate", json=spec_of(platform, "link")).status_code == 422
    run = platform.post("/v1/recommenders/link/runs")["id"]
    assert "root" in platform.wait_for_run(run, "failed")["reason"]


def test_a_wrong_field_is_refused_before_anything_is_kept(platform: PlatformProcess) -> None:
    document = spec_of(platform, "wrong") | {"modle": {}}
    response = platform.client.post("/v1/recommenders", json=document)
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert "unknown field 'modle': did you mean 'model'?" in response.json()["detail"]
    assert platform.client.get("/v1/recommenders/wrong").status_code == 404


def test_the_platform_goes_on(platform: PlatformProcess) -> None:
    run = platform.post("/v1/recommenders", spec(platform.data))["run"]
    assert platform.wait_for_run(run, "registered")["version"] == 1
