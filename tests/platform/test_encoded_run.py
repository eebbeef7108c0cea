"""Texts and images of a table become features in the run itself, in the whole platform: trained on, verified on the server, served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.servers.platform_process import PlatformProcess, until
from tests.support.onnx_encoders import WORDS, write_colours, write_words

USERS, FILMS, NAME = 120, 40, "encoded"
KINDS = ["a ship between stars", "two people in love", "soldiers at war", "the chef cooks"]
SPEC: dict[str, Any] = {
    "name": NAME,
    "data": {
        "interactions": {"uri": "ratings.parquet"},
        "items": {"uri": "films.parquet", "key": "filmId"},
        "users": {"uri": "users.parquet", "key": "userId"},
    },
    "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
    "features": [
        {"categorify": ["userId", "filmId"], "min_count": 5},
        {
            "vector": {
                "of": "filmId",
                "as": "plot",
                "width": 8,
                "encode": {"column": "plot", "encoder": "encoders/words.onnx", "words": WORDS},
            }
        },
        {
            "vector": {
                "of": "filmId",
                "as": "poster",
                "width": 3,
                "encode": {"column": "file", "encoder": "encoders/colours.onnx", "images": "posters"},
            }
        },
        {"vector": {"of": "userId", "width": 8, "encode": {"column": "about", "encoder": "encoders/words.onnx", "words": WORDS}}},
    ],
    "model": {"family": "mlp", "train": {"epochs": 12}},
    "gates": [{"metric": "auc", "min": 0.6}, {"parity": 1e-4}],
    "serve": {"warm_up": 16},
}


def write_films(folder: Path, count: int) -> None:
    """A film's kind is its key modulo four, and its plot says which; one has no plot and one no poster."""
    plots = [None if film == 9 else KINDS[film % 4] for film in range(count)]
    for film in range(count):
        if film != 10:
            np.save(folder / "posters" / f"{film}.npy", np.full((4, 4, 3), 40 + film % 4 * 60, np.uint8))
    files = [f"{film}.npy" for film in range(count)]
    pl.DataFrame({"filmId": range(count), "plot": plots, "file": files}, schema_overrides={"plot": pl.String}).write_parquet(
        folder / "films.parquet"
    )


def write_data(folder: Path) -> None:
    """Users like one kind, and say so."""
    for name in ("encoders", "posters"):
        (folder / name).mkdir(parents=True)
    write_words(folder / "encoders" / "words.onnx", width=8)
    write_colours(folder / "encoders" / "colours.onnx")
    random, rows = np.random.default_rng(4), 4_000
    user, film = random.integers(0, USERS, rows), random.integers(0, FILMS, rows)
    liked = random.random(rows) < np.where(user % 4 == film % 4, 0.95, 0.03)
    ratings = {"userId": user, "filmId": film, "rating": np.where(liked, 5, 1), "at": 1_600_000_000 + np.arange(rows) * 60}
    pl.DataFrame(ratings).write_parquet(folder / "ratings.parquet")
    pl.DataFrame({"userId": range(USERS), "about": [f"I like {KINDS[one % 4]}" for one in range(USERS)]}).write_parquet(
        folder / "users.parquet"
    )
    write_films(folder, FILMS)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("encoded")
    write_data(folder / "data")
    with PlatformProcess(folder / "home", folder / "data") as found:
        yield found


def scores(platform: PlatformProcess, user: int, films: int, version: int) -> dict[int, float] | None:
    """Of each film; None until the version answers with so many: the former version scores new films too, without their texts."""
    found = platform.client.post(f"/v1/recommend/{NAME}", json={"user": user, "k": films})
    if not found.is_success or found.json()["fallback"] is not None or found.json()["version"] != version:
        return None
    if len(found.json()["items"]) < films:
        return None
    return {one["item"]: one["score"] for one in found.json()["items"]}


def encoded(platform: PlatformProcess, run: dict[str, Any]) -> Any:
    return platform.get(f"/v1/recommenders/{NAME}/versions/{run['version']}")["lineage"]["stages"]["etl"]["encoded"]


@pytest.mark.requirement("G-30")
@pytest.mark.timeout(900)
def test_texts_and_images_are_encoded_by_the_run_and_a_film_that_nobody_met_is_known_by_them(platform: PlatformProcess) -> None:
    run = platform.wait_for_run(platform.post("/v1/recommenders", SPEC)["run"], "registered", seconds=280)
    users = {"encoded": 4, "known": USERS - 4, "without": 0}
    assert encoded(platform, run) == {
        "plot": {"encoded": 4, "known": FILMS - 5, "without": 1},
        "poster": {"encoded": 4, "known": FILMS - 5, "without": 1},
        "userId_vector": users,
    }
    platform.wait_for_rollout(run["rollout"], "promoted", "canary")
    until("the version scores", lambda: scores(platform, 0, FILMS, run["version"]))

    write_films(Path(platform.data), FILMS + 4)
    run = platform.wait_for_run(platform.post(f"/v1/recommenders/{NAME}/runs", {"mode": "full"})["id"], "registered", seconds=280)
    assert encoded(platform, run) == {
        "plot": {"encoded": 0, "known": FILMS + 3, "without": 1},
        "poster": {"encoded": 0, "known": FILMS + 3, "without": 1},
        "userId_vector": {"encoded": 0, "known": USERS, "without": 0},
    }
    platform.wait_for_rollout(run["rollout"], "canary", "promoted")
    platform.client.post(f"/v1/rollouts/{run['rollout']}:promote")
    platform.wait_for_rollout(run["rollout"], "promoted")
    for user in range(4):
        found = until("the new films are scored", lambda user=user: scores(platform, user, FILMS + 4, run["version"]))  # type: ignore[misc]
        new = {film: found[film] for film in range(FILMS, FILMS + 4)}
        assert max(new, key=new.__getitem__) % 4 == user, "the film of the user's kind, by its plot and poster alone"
