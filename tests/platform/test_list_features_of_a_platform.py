"""Lists as values and offsets in the whole platform: of items (the catalogue), of users (the feature store), of the request."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until

USERS, FILMS, NAME = 200, 60, "listed"
GENRES = ["Drama", "Comedy", "Kids", "科幻"]
START = datetime.now(UTC) - timedelta(days=60)
SPEC: dict[str, Any] = {
    "name": NAME,
    "data": {
        "interactions": {"uri": "ratings.parquet"},
        "items": {"uri": "films.parquet", "key": "filmId"},
        "users": {"uri": "users.parquet", "key": "userId"},
    },
    "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
    "features": [
        {"categorify": ["userId", "filmId"], "min_count": 1},
        {"multi_hot": "genres"},
        {"multi_hot": "tastes", "min_count": 1},
        {"multi_hot": "devices", "separator": "|"},
        {"sequence": {"of": "filmId", "by": "userId", "length": 4}},
    ],
    "model": {"family": "mlp", "train": {"epochs": 6, "batch_size": 256}},
    "gates": [{"metric": "auc", "min": 0.5}, {"parity": 1e-4}],
    "serve": {"filter": [{"available": True}], "deadlines": {"features": "500ms"}, "warm_up": 16},
}
OFFSETS = SPEC | {"serve": SPEC["serve"] | {"lists": "offsets", "vocabulary_limit": 100}}
"""Users' sequences are looked up by key, too."""


def write_data(folder: Path) -> None:
    """Users like films of a genre that is among their tastes, more so on a television."""
    chance = random.Random(5)
    tastes = [[None, [], [user % 4], [user % 4, (user + 1) % 4]][user % 7 % 4] for user in range(USERS)]
    genres = [[None, [], [GENRES[film % 4]], [GENRES[film % 4], GENRES[film // 4 % 4]]][film % 9 % 4] for film in range(FILMS)]
    rows = []
    for user in range(USERS):
        for film in chance.sample(range(FILMS), 30):
            device = chance.choice(["tv", "phone", "tv|phone", "", None])
            liked = film % 4 in (tastes[user] or [user % 4]) and (chance.random() < 0.8 or device == "tv")
            rows.append((user, film, 5 if liked else 1, START + timedelta(seconds=chance.randrange(50 * 86_400)), device))
    pl.DataFrame(rows, schema=["userId", "filmId", "rating", "at", "devices"], orient="row").write_parquet(folder / "ratings.parquet")
    films = {"filmId": range(FILMS), "genres": genres}
    pl.DataFrame(films, schema={"filmId": pl.Int64(), "genres": pl.List(pl.String())}).write_parquet(folder / "films.parquet")
    users = {"userId": range(USERS), "tastes": tastes}
    pl.DataFrame(users, schema={"userId": pl.Int64(), "tastes": pl.List(pl.Int64())}).write_parquet(folder / "users.parquet")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("listed")
    (folder / "data").mkdir()
    write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as found:
        yield found


def scores(platform: PlatformProcess, user: int, devices: list[str], version: int) -> dict[int, float] | None:
    """Of each film; None until that version's model answers."""
    found = platform.client.post(f"/v1/recommend/{NAME}", json={"user": user, "k": FILMS, "context": {"devices": devices}})
    if not found.is_success or found.json()["version"] != version or found.json()["fallback"] is not None:
        return None
    return {one["item"]: one["score"] for one in found.json()["items"]}


@pytest.mark.requirement("T-05", "T-12")
@pytest.mark.timeout(900)
def test_lists_as_offsets_are_verified_served_and_compared_with(platform: PlatformProcess) -> None:
    asked = [(0, []), (1, ["tv"]), (2, ["phone", "tv"]), (3, ["radio"]), (4, ["tv"] * 9)]
    platform.promoted(SPEC)
    before = [until("version 1 scores", lambda one=one: scores(platform, *one, version=1)) for one in asked]  # type: ignore[misc]
    assert all(len(one) == FILMS for one in before)
    bare = scores(platform, 1, [], version=1)
    assert bare is not None and bare != before[1], "the devices count"

    run = platform.promoted(OFFSETS)
    after = [until("version 2 scores", lambda one=one: scores(platform, *one, version=2)) for one in asked]  # type: ignore[misc]
    reused = {one["stage"] for one in run["stages"] if one["reused"]}
    assert reused >= {"etl", "train"} and not reused & {"export", "verify"}
    for ours, theirs in zip(after, before, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6), "the same model, asked in another way"

    platform.client.put(f"/v1/features/{NAME}/users", json={"rows": [{"key": 1, "values": {"tastes": [3, 0]}}]}).raise_for_status()
    until("a newer list of the user's counts", lambda: scores(platform, *asked[1], version=2) != after[1])

    gates = [{"metric": "auc", "not_worse_than": "serving", "by": 0.2}, {"parity": 1e-4}]
    changed = OFFSETS | {"gates": gates, "model": {"family": "mlp", "train": {"epochs": 7, "batch_size": 256}}}
    run = platform.wait_for_run(platform.post("/v1/recommenders", changed)["run"], "registered", seconds=280)
    assert run["metrics"]["serving.auc"] == pytest.approx(run["metrics"]["candidate.auc"], rel=0.2)
