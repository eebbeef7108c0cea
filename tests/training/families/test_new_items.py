"""Items without any like in the training are ranked by their other features, by every family that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.refitted import Stages

USERS, ITEMS, NEW = 200, 100, 30
GENRE = 33
"""Items of a genre, new ones among them."""
TRAIN = {"epochs": 12, "batch_size": 512, "learning_rate": 0.01}
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"params": {"layers": [16], "width": 8}, "train": TRAIN},
    "wide_deep": {"params": {"layers": [16], "width": 7}, "train": TRAIN},
    "dlrm": {"params": {"layers": [16], "width": 8}, "train": TRAIN},
    "two_tower": {"params": {"layers": [16], "width": 8, "embedding": 8}, "train": TRAIN},
    "session": {"params": {"width": 16, "blocks": 1, "length": 20}, "train": {"epochs": 20, "learning_rate": 0.01}},
    "gbm": {"params": {"trees": 40, "width": 8}},
}


def write(folder: Path, tastes: bool) -> None:
    """Users like items of their own genre; without tastes, all like dramas. New items are in the newest rows alone."""
    random = np.random.default_rng(1)
    user = random.integers(0, USERS, 12_000)
    newest = np.arange(len(user)) >= 10_000
    item = np.where(newest, random.integers(0, ITEMS + NEW, len(user)), random.integers(0, ITEMS, len(user)))
    liked = random.random(len(user)) < np.where(item % 4 == (user % 4 if tastes else 0), 0.9, 0.05)
    stars = np.where(liked, 5.0, 1.0)
    pl.DataFrame({"user": user, "item": item, "stars": stars, "at": 1.6e9 + np.arange(len(user)) * 60.0}).write_parquet(
        folder / "ratings.parquet"
    )
    genres = [["Drama", "Comedy", "Horror", "Kids"][number % 4] for number in range(ITEMS + NEW)]
    pl.DataFrame({"item": range(ITEMS + NEW), "genre": genres}).write_parquet(folder / "items.parquet")


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("family", MODELS)
def test_new_items_are_ranked_by_their_features(tmp_path: Path, family: str) -> None:
    """Trees know no user's taste for a genre, only which genres are popular."""
    stages = Stages(tmp_path)
    write(tmp_path, tastes=family != "gbm")
    features = [{"categorify": ["user", "item"]}, {"categorify": ["genre"]}]
    spec = stages.spec(
        model={"family": family, **MODELS[family]},
        features=features,
        split={"by": "time", "test": "120000s"},
        gates=[{"metric": f"hr@{GENRE}", "min": 0}],
    )
    metrics: dict[str, float] = {}
    files: dict[str, Any] = {}
    for name in ("etl", "train", "evaluate"):
        outcome = stages.stage(name, spec, dict(files))
        files[name] = {path: stages.store.put(place) for path, place in outcome.files.items()}
        metrics |= outcome.metrics
    random_order = GENRE / (ITEMS + NEW)
    assert metrics[f"candidate.hr@{GENRE}{{cold_items}}"] > 2 * random_order
