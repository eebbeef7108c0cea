"""What is known of users, from their table to the answers: trained on, published, put into the feature store, overruled by newer values,
and done without while the store is away."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.servers.redis_server import RedisServer

USERS, FILMS, NAME = 300, 60, "towns"
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
        {"categorify": ["userId", "filmId", "town"], "min_count": 1},
        {"normalise": ["age"]},
        {"cyclic": {"of": "at"}},
    ],
    "model": {"family": "mlp", "train": {"epochs": 60}},  # of few rows: users gave the negatives, so none are drawn
    "gates": [{"metric": "auc", "min": 0.5}, {"parity": 1e-4}],
    "serve": {"filter": [{"available": True}], "store": {"ttl": "3650d"}, "deadlines": {"features": "500ms"}},
}


def write_data(folder: Path) -> None:
    """Users of one town like films of even numbers, those of the other one the odd ones."""
    chance = random.Random(5)
    rows = []
    for user in range(USERS):
        for film in chance.sample(range(FILMS), 40):
            liked = film % 2 == user % 2
            at = START + timedelta(seconds=chance.randrange(50 * 86_400))
            rows.append((user, film, 5 if liked else 1, at))
    table = pl.DataFrame(rows, schema=["userId", "filmId", "rating", "at"], orient="row")
    table.write_parquet(folder / "ratings.parquet")
    pl.DataFrame({"filmId": range(FILMS)}).write_parquet(folder / "films.parquet")
    users = pl.DataFrame(
        {"userId": range(USERS), "town": [f"town-{user % 2}" for user in range(USERS)], "age": [20.0 + n % 50 for n in range(USERS)]}
    )
    users.write_parquet(folder / "users.parquet")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a platform that has trained a version and serves it, with its features in SQL."""
    folder = tmp_path_factory.mktemp("towns")
    (folder / "data").mkdir()
    write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as platform:
        applied = platform.post("/v1/recommenders", SPEC)
        platform.wait_for_run(applied["run"], "registered", seconds=280)
        until("the version serves", lambda: serves(platform))
    yield folder


def serves(platform: PlatformProcess) -> bool:
    found = platform.client.post(f"/v1/recommend/{NAME}", json={"user": 1})
    return found.is_success and found.json()["fallback"] is None


def scores(platform: PlatformProcess, user: int) -> dict[int, float]:
    found = platform.post(f"/v1/score/{NAME}", {"user": user, "items": list(range(FILMS))})
    return {one["item"]: one["score"] for one in found["items"]}


def by_more_than_the_clock(before: dict[int, float], after: dict[int, float]) -> dict[int, float] | None:
    """How far each film's score moved; None where it is no more than a moment of the day that has passed between the two."""
    moved = {film: after[film] - before[film] for film in before}
    return moved if max(map(abs, moved.values())) > 1e-3 else None


def reads(platform: PlatformProcess, outcome: str) -> float:
    text = platform.client.get(platform.metrics_url).text
    lines = [line for line in text.splitlines() if line.startswith("eyas_feature_reads_total{") and f'outcome="{outcome}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def held(platform: PlatformProcess, user: int) -> list[tuple[Any, Any]]:
    found = platform.client.get(f"/v1/features/{NAME}/users/{user}")
    return [(one["version"], one["values"]) for one in found.json()["rows"]] if found.is_success else []


@pytest.mark.requirement("G-08", "G-29")
@pytest.mark.timeout(900)
def test_a_version_is_asked_with_what_is_known_of_users_now(home: Path) -> None:
    with PlatformProcess(home / "home", home / "data") as platform:
        until("the version serves", lambda: serves(platform))
        (view,) = platform.get(f"/v1/features/{NAME}")["views"]
        assert (view["name"], view["rows"], view["loaded"], view["ttl"]) == ("users", USERS, True, "3650d")
        assert sorted(one["name"] for one in view["columns"]) == ["age", "town"]
        assert held(platform, 7) == [(1, {"age": 27.0, "town": "town-1"})]
        before = scores(platform, 7)
        away = reads(platform, "away")
        hits = reads(platform, "hit")
        written = platform.client.put(f"/v1/features/{NAME}/users", json={"rows": [{"key": 7, "values": {"town": "town-0"}}]})
        assert written.json() == {"accepted": 1, "standing": 1}
        assert held(platform, 7) == [(None, {"town": "town-0"}), (1, {"age": 27.0, "town": "town-1"})]
        moved = until("the newer value counts", lambda: by_more_than_the_clock(before, scores(platform, 7)))
        even = sum(moved[film] for film in range(0, FILMS, 2))
        odd = sum(moved[film] for film in range(1, FILMS, 2))
        assert even > odd, "who moves to the other town is told more of its films"
        assert reads(platform, "hit") > hits
        assert reads(platform, "away") == away


@pytest.mark.requirement("G-08")
@pytest.mark.timeout(900)
def test_redis_is_filled_from_what_is_known_and_answers_go_on_without_it(home: Path, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path / "redis", "secret")
    redis.start()
    try:
        with PlatformProcess(home / "home", home / "data", settings={"EYAS_FEATURES": redis.url}) as platform:
            until("the version serves", lambda: serves(platform))
            until("Redis holds what SQL held", lambda: len(held(platform, 8)) == 1 and held(platform, 8)[0][0] == 1)
            platform.client.put(f"/v1/features/{NAME}/users", json={"rows": [{"key": 8, "values": {"town": "town-1"}}]})
            newer = held(platform, 8)
            assert [version for version, _ in newer] == [None, 1]

            redis.kill()
            away = reads(platform, "away")
            for user in range(100, 120):
                answer = platform.post(f"/v1/recommend/{NAME}", {"user": user})
                assert answer["fallback"] is None
            assert reads(platform, "away") >= away + 20

            redis.start()  # empty
            until("Redis is filled anew, with what was written", lambda: held(platform, 8) == newer)
            until("answers are by its values again", lambda: scores(platform, 9) and reads(platform, "hit") > 0)
            assert "secret" not in platform.log
    finally:
        redis.kill()
