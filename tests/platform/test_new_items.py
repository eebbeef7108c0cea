"""An item that a client writes to the catalogue is a candidate of the served version, scored like an item that the training had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from tests.platform.test_recent_behaviour import FILMS, TASTES, answer, scores, taste, write_data
from tests.servers.platform_process import PlatformProcess, until

UNRATED = 900
"""Id of the first film without ratings; there is one for each genre."""
NEW = 1000
TRAIN = {"epochs": 40, "batch_size": 256, "learning_rate": 0.01}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"model": {"family": "mlp", "params": {"layers": [32], "width": 16}, "train": TRAIN}},
    "two-tower": {
        "model": {"family": "two_tower", "params": {"layers": [32], "width": 16}, "train": TRAIN},
        "serve": {"retrieve": {"candidates": 20}},
    },
}
"""By recommender."""


def spec(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "data": {"interactions": {"uri": "ratings.parquet"}, "items": {"uri": "films.parquet", "key": "filmId"}},
        "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
        "features": [{"categorify": ["userId", "filmId", "genre"], "min_count": 1}],
        "gates": [{"metric": "hr@10", "min": 0.01}, {"parity": 1e-4}],
        **MODELS[name],
    }


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    folder = tmp_path_factory.mktemp("new")
    (folder / "data").mkdir()
    write_data(folder / "data")
    films = [*range(FILMS), *range(UNRATED, UNRATED + TASTES)]
    genres = [f"genre {taste(film)}" for film in films]
    pl.DataFrame({"filmId": films, "genre": genres}).write_parquet(folder / "data/films.parquet")
    with PlatformProcess(folder / "home", folder / "data") as process:
        yield process


def shown(platform: PlatformProcess, name: str, user: int) -> list[int]:
    response = platform.client.post(f"/v1/recommend/{name}", json={"user": user, "k": 200})
    return [item["item"] for item in response.raise_for_status().json()["items"]]


@pytest.mark.requirement("G-01")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", MODELS)
def test_a_new_item_is_a_candidate_and_scored_by_its_genre(platform: PlatformProcess, name: str) -> None:
    platform.promoted(spec(name))
    assert platform.get(f"/v1/recommenders/{name}/versions/1/card")["about"]["new_items"] == ["genre"]
    until("the version scores", lambda: answer(platform, name, 0)["fallback"] is None)
    assert not [film for film in shown(platform, name, 0) if film >= NEW]
    films = range(NEW, NEW + TASTES)
    writes = [{"item": film, "attributes": {"genre": f"genre {film - NEW}"}} for film in films]
    platform.client.post(f"/v1/items/{name}", json={"items": writes}).raise_for_status()
    until("the new films are candidates", lambda: set(films) <= set(shown(platform, name, 0)))
    for user in range(2 * TASTES):
        of_unrated = scores(platform, name, user, list(range(UNRATED, UNRATED + TASTES)))
        of_new = scores(platform, name, user, list(films))
        assert of_new == pytest.approx(of_unrated, abs=1e-6), "a new film is scored like an unrated film of its genre in the training"
        assert max(films, key=lambda film: of_new[film - NEW]) - NEW == taste(user)
    platform.client.delete(f"/v1/items/{name}/{NEW}").raise_for_status()
    until("the deleted film is gone", lambda: NEW not in shown(platform, name, 0))
