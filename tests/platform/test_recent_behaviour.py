"""What a user likes now counts in the next answer: each family that reads recent items, through the whole platform."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until

USERS, FILMS, TASTES = 160, 80, 4
START = datetime.now(UTC) - timedelta(days=60)
MODELS: dict[str, dict[str, Any]] = {
    "ease": {"model": {"family": "ease", "params": {"regularisation": 50}}},
    "itemknn": {"model": {"family": "itemknn"}},
    "mf": {"model": {"family": "mf", "params": {"width": 16, "regularisation": 0.01}}, "serve": {"retrieve": {"candidates": 20}}},
    "session": {"model": {"family": "session", "params": {"width": 16, "length": 20}, "train": {"epochs": 60}}},
    "reader": {
        "model": {"family": "session", "params": {"width": 16}, "train": {"epochs": 60}},
        "features": [
            {"categorify": ["userId", "filmId"], "min_count": 1},
            {"sequence": {"of": "filmId", "by": "userId", "length": 20, "liked": True}},
        ],
    },
    "tower": {
        "model": {"family": "two_tower", "params": {"layers": [32], "width": 16}, "train": {"epochs": 60, "batch_size": 256}},
        "features": [
            {"categorify": ["userId", "filmId"], "min_count": 1},
            {"sequence": {"of": "filmId", "by": "userId", "length": 20, "liked": True}},
        ],
        "serve": {"retrieve": {"candidates": 20}},
    },
}
"""By recommender."""


def spec(name: str, **serve: object) -> dict[str, Any]:
    own = MODELS.get(name, MODELS["ease"])
    return {
        "name": name,
        "data": {"interactions": {"uri": "ratings.parquet"}, "items": {"uri": "films.parquet", "key": "filmId"}},
        "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "filmId"], "min_count": 1}],
        "gates": [{"metric": "hr@10", "min": 0.01}, {"parity": 1e-4}],
        **own,
        "serve": {**own.get("serve", {}), **serve},
    }


def taste(film: int) -> int:
    return film % TASTES


def write_data(folder: Path) -> None:
    """A user likes 12 films of one taste, two of another, and dislikes three."""
    chance = random.Random(5)
    rows = []
    for user in range(USERS):
        films = chance.sample([film for film in range(FILMS) if taste(film) == user % TASTES], 12)
        films += chance.sample([film for film in range(FILMS) if taste(film) != user % TASTES], 2)
        chance.shuffle(films)
        rows += [(user, film, 5, START + timedelta(hours=at, minutes=user)) for at, film in enumerate(films)]
        disliked = chance.sample([film for film in range(FILMS) if film not in films and taste(film) != user % TASTES], 3)
        rows += [(user, film, 1, START + timedelta(hours=at, minutes=user, seconds=30)) for at, film in enumerate(disliked)]
    pl.DataFrame(rows, schema=["userId", "filmId", "rating", "at"], orient="row").write_parquet(folder / "ratings.parquet")
    pl.DataFrame({"filmId": range(FILMS)}, schema={"filmId": pl.Int64()}).write_parquet(folder / "films.parquet")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("recent")
    (folder / "data").mkdir()
    write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as process:
        yield process


def answer(platform: PlatformProcess, name: str, user: int, items: list[int] | None = None) -> dict[str, Any]:
    response = platform.client.post(f"/v1/recommend/{name}?explain=true", json={"user": user, "k": 8, "items": items or []})
    response.raise_for_status()
    document: dict[str, Any] = response.json()
    return document


def share(document: dict[str, Any], wanted: int) -> float:
    """Returns which share of the answer's films belongs to the taste `wanted`."""
    tastes = [taste(item["item"]) for item in document["items"]]
    return tastes.count(wanted) / len(tastes)


def scores(platform: PlatformProcess, name: str, user: int, films: list[int]) -> list[float]:
    response = platform.client.post(f"/v1/score/{name}", json={"user": user, "items": films}).raise_for_status()
    return [item["score"] for item in response.json()["items"]]


def preference(platform: PlatformProcess, name: str, user: int, wanted: int) -> float:
    """How much higher the last films of a taste score than those of the others."""
    films = list(range(FILMS // 2, FILMS))
    of_films = scores(platform, name, user, films)
    own, others = ([score for score, film in zip(of_films, films, strict=True) if (taste(film) == wanted) == own] for own in (True, False))
    return sum(own) / len(own) - sum(others) / len(others)


def new_user(platform: PlatformProcess, name: str, own: int, number: int) -> int:
    """Returns a user who is unknown to the version and likes three films of one taste."""
    user = 2_000_000 + own * 10 + number
    like(platform, name, user, *(own + TASTES * (3 * number + film) for film in range(3)))
    return user


def like(platform: PlatformProcess, name: str, user: int, *films: int) -> None:
    events = [{"recommender": name, "user": user, "item": film, "value": 5} for film in films]
    platform.client.post("/v1/events", json={"events": events}).raise_for_status()


@pytest.mark.requirement("U-14")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MODELS)
def test_a_like_counts_in_the_next_answer(platform: PlatformProcess, name: str) -> None:
    platform.promoted(spec(name))
    card = platform.get(f"/v1/recommenders/{name}/versions/1/card")
    assert "recent likes" in card["about"]["recent"], "the card says how the version treats them"
    until("the version scores", lambda: answer(platform, name, 0)["fallback"] is None)
    stranger = 1_000_000
    assert answer(platform, name, stranger)["fallback"] == "unknown user"
    like(platform, name, stranger, 3, 7, 11)
    new = answer(platform, name, stranger)
    assert new["fallback"] is None, "three likes are enough for an answer of the version"
    assert share(new, 3) >= 0.5
    varies = name == "tower"  # what it learns of one user depends on the luck of the training, so means are compared
    tastes, users = (range(TASTES), range(3)) if varies else ((3,), range(1))
    own = [preference(platform, name, new_user(platform, name, wanted, user), wanted) for wanted in tastes for user in users]
    other = [
        preference(platform, name, new_user(platform, name, (wanted + 2) % TASTES, user), wanted) for wanted in tastes for user in users
    ]
    assert mean(own) > mean(other), "new users prefer the taste that they like"
    assert not {3, 7, 11} & {item["item"] for item in new["items"]}
    shown = [item["item"] for item in new["items"]]
    assert scores(platform, name, stranger, shown) == pytest.approx([item["score"] for item in new["items"]], abs=1e-5)

    known = {user: (user + 2) % TASTES for user in range(3 * TASTES if varies else 1)}
    before = [preference(platform, name, user, wanted) for user, wanted in known.items()]
    for user, wanted in known.items():
        like(platform, name, user, *[film for film in range(FILMS) if taste(film) == wanted][:10])
    after = [preference(platform, name, user, wanted) for user, wanted in known.items()]
    assert mean(after) > mean(before), "a new taste of known users counts"
    viewed = answer(platform, name, stranger + 1, items=[1, 5, 9])
    assert viewed["fallback"] is None and share(viewed, 1) >= 0.5, "items of the request count alike"


@pytest.mark.requirement("U-14")
@pytest.mark.timeout(900)
def test_recent_items_can_be_turned_off(platform: PlatformProcess) -> None:
    name, stranger = "quiet", 1_000_000
    platform.promoted(spec(name))
    like(platform, name, stranger, 3, 7, 11)
    assert answer(platform, name, stranger)["fallback"] is None
    platform.client.put(f"/v1/recommenders/{name}", json=spec(name, recent="off")).raise_for_status()
    until("the served version gets no recent items", lambda: answer(platform, name, stranger)["fallback"] == "unknown user")
