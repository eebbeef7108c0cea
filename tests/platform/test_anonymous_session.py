"""An anonymous session through the API, on a real server: a stranger says what was looked at, and is told what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until

USERS, FILMS, STEPS, NAME, STRANGER = 60, 30, 12, "walks", 987_654
SPEC: dict[str, Any] = {
    "name": NAME,
    "data": {"interactions": {"uri": "ratings.parquet"}, "items": {"uri": "films.parquet", "key": "filmId"}},
    "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
    "features": [
        {"categorify": ["userId", "filmId"], "min_count": 1},
        {"sequence": {"of": "filmId", "by": "userId", "length": 4}},
    ],
    "model": {
        "family": "session",
        "params": {"width": 16, "blocks": 1, "dropout": 0.0},
        "train": {"epochs": 60, "learning_rate": 0.01, "batch_size": 16},
    },
    "gates": [{"metric": "hr@10", "min": 0.0, "min_users": 1}, {"parity": 1e-4}],
    "serve": {"order": {"explore": {"rate": 0}}},
}


def write_data(folder: Path) -> None:
    """Everybody begins somewhere in a circle of films, and goes on to the next but one: upwards, or downwards."""
    folder.mkdir()
    rows = [
        (user, (user * 7 + step * (2 if user // 2 % 2 else -2)) % FILMS, 5, 1_700_000_000 + step * 1000 + user)
        for step in range(STEPS)
        for user in range(USERS)
    ]
    pl.DataFrame(rows, schema=["userId", "filmId", "rating", "at"], orient="row").write_parquet(folder / "ratings.parquet")
    pl.DataFrame({"filmId": range(FILMS)}).write_parquet(folder / "films.parquet")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("walks")
    write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as running:
        applied = running.post("/v1/recommenders", SPEC)
        running.wait_for_run(applied["run"], "registered", seconds=280)
        until("the version serves", lambda: running.client.post(f"/v1/recommend/{NAME}", json={"user": 1}).is_success)
        yield running


def told(platform: PlatformProcess, *items: int, user: int = STRANGER) -> dict[str, Any]:
    """By whatever there is to tell it by, once Triton has the time."""

    def answer() -> dict[str, Any] | None:
        found: dict[str, Any] = platform.post(f"/v1/recommend/{NAME}", {"user": user, "items": list(items), "k": 1})
        return found if found["fallback"] != "scoring unavailable" else None

    return dict(until("an answer in time", answer))


def next_of(platform: PlatformProcess, start: int, way: int) -> int:
    found: int = told(platform, *((start + step * way) % FILMS for step in range(3)))["items"][0]["item"]
    return found


@pytest.mark.requirement("G-20", "G-01")
@pytest.mark.timeout(600)
def test_a_stranger_is_told_what_comes_next_by_the_transformer_itself(platform: PlatformProcess) -> None:
    up, down, nobody = told(platform, 4, 6, 8), told(platform, 8, 6, 4), told(platform)
    assert (up["fallback"], down["fallback"], nobody["fallback"]) == (None, None, "unknown user")
    assert up["items"][0]["score"] is not None
    starts = range(0, FILMS, 3)
    ahead, back = (sum(next_of(platform, start, way) == (start + 3 * way) % FILMS for start in starts) for way in (2, -2))
    assert ahead >= 8 and back >= 8, "the same items the other way round lead elsewhere"
    assert {one["item"] for one in (*up["items"], *down["items"])}.isdisjoint({4, 6, 8})
