"""What was written of users reaches training as it reaches serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shared.artifacts.store import FsspecArtifacts
from shared.contracts.online import USERS, history_name
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.stage_process import Outcome
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import spec, write

LAST = int((1.6e9 + 199 * 3600) * 1_000_000)
"""The newest moment of the interactions."""
DAY = 86_400_000_000


def wanted(folder: Path, **serve: Any) -> RecommenderSpec:
    write(folder)
    people = pl.DataFrame({"userId": range(1, 31), "town": ["Bern"] * 30, "tags": ["a|b"] * 30})
    people.write_parquet(folder / "people.parquet")
    data = spec(folder).document()["data"] | {"users": {"uri": str(folder / "people.parquet"), "key": "userId"}}
    features = [{"categorify": ["userId", "movieId", "town"]}, {"multi_hot": "tags", "separator": "|"}]
    return spec(folder, data=data, features=features, serve=serve)


def said(folder: Path, *rows: tuple[int, int, dict[str, Any]]) -> dict[str, Files]:
    """As a run gives it to etl."""
    path = folder / history_name(USERS)
    path.write_text("".join(json.dumps({"key": key, "at": at, "values": values}) + "\n" for key, at, values in rows))
    return {"features": {path.name: FsspecArtifacts(str(folder / "artifacts")).put(path)}}


def users(outcome: Outcome) -> dict[int, tuple[Any, ...]]:
    table = pl.read_parquet(outcome.files["users.parquet"])
    return {key: (town, tags) for key, town, tags in table.select("userId", "town", "tags").iter_rows()}


@pytest.mark.requirement("G-08")
def test_the_newest_of_what_was_written_stands_in_the_users_table(tmp_path: Path, etl: Etl) -> None:
    recommender = wanted(tmp_path)
    here = [(1, LAST, {"town": "Basel"}), (2, LAST - 9, {"town": "Chur"}), (2, LAST, {"tags": ["c"]}), (999, LAST, {"town": "Genf"})]
    inputs = said(tmp_path, *here)
    plain, found = etl(recommender), etl(recommender, inputs=inputs)
    assert users(plain)[1] == users(plain)[2] == ("Bern", ["a", "b"])
    assert users(found)[1] == ("Basel", ["a", "b"])
    assert users(found)[2] == ("Bern", ["c"]), "a row is all that was known then: what it leaves open, the table says"
    assert users(found)[3] == ("Bern", ["a", "b"])
    assert 999 not in users(found)
    assert found.facts["snapshot"] != plain.facts["snapshot"]


@pytest.mark.requirement("G-08")
def test_what_was_too_old_by_the_last_moment_of_the_data_is_not_trained_on(tmp_path: Path, etl: Etl) -> None:
    recommender = wanted(tmp_path, store={"ttl": "1d"})
    inputs = said(tmp_path, (1, LAST - DAY, {"town": "Basel"}), (2, LAST - DAY - 1, {"town": "Chur"}))
    found = users(etl(recommender, inputs=inputs))
    assert (found[1][0], found[2][0]) == ("Basel", "Bern")
    inputs = said(tmp_path, (1, LAST - DAY, {"town": "Basel"}), (2, LAST + 1, {"town": "Chur"}))
    found = users(etl(recommender, inputs=inputs))
    assert (found[1][0], found[2][0]) == ("Bern", "Chur"), "what was written is of a later moment than the interactions"


def test_without_anything_written_the_table_is_what_it_was(tmp_path: Path, etl: Etl) -> None:
    recommender = wanted(tmp_path)
    assert users(etl(recommender, inputs=said(tmp_path))) == users(etl(recommender))
