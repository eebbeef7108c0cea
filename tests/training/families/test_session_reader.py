"""The session transformer is trained on sequences of rows: it predicts the next item of strangers too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.features.columns import FIRST
from pipelines.features.prepared import FEATURE
from tests.support.exported_units import Small, small

# Of a spec's features, from rows to what is served.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return small(tmp_path_factory.mktemp("small"), "sequence")


def test_it_learns_what_comes_next_from_sequences_of_rows(world: Small, tmp_path: Path) -> None:
    """Everybody goes on to the next item: of strangers' sequences it says so too."""
    folder = tmp_path / "walks"
    folder.mkdir()
    frame = pl.read_parquet(world.folder / "train.parquet")
    codes = world.catalogue.columns["movieId"]
    known = np.flatnonzero(codes >= FIRST)
    steps, users = 8, 40
    at = (np.arange(users)[:, None] * 3 + np.arange(steps)[None, :]) % len(known)
    item_rows = known[at]
    before = np.zeros((users, steps, 4), np.int32)
    for step in range(1, steps):
        some = codes[item_rows[:, max(0, step - 4) : step]]
        before[:, step, : some.shape[1]] = some
    keys = world.items["movieId"].to_numpy()
    columns = {
        "user": np.repeat(np.arange(users), steps),
        "item": keys[item_rows.ravel()],
        "item_row": item_rows.ravel(),
        "user_code": np.full(users * steps, 1),
        "time": np.tile(np.arange(steps), users),
        "label": np.ones(users * steps),
        f"{FEATURE}movieId_sequence": pl.Series(before.reshape(-1, 4), dtype=pl.Array(pl.Int32, 4)),
    }
    pl.DataFrame(columns).cast({name: dtype for name, dtype in frame.schema.items() if name in columns}).write_parquet(
        folder / "train.parquet"
    )  # type: ignore[arg-type]
    walks = replace(world, folder=folder)
    params = {"width": 16, "blocks": 1, "dropout": 0.0}
    found = walks.train("session", params=params, train={"epochs": 40, "learning_rate": 0.01, "batch_size": 16})
    asked = np.stack([np.roll(codes[known], -start)[:4] for start in range(len(known))])
    every = np.repeat(asked, len(known), axis=0)
    scores = found.score({"movieId_sequence": every, "movieId": np.tile(codes[known], len(known))}).reshape(len(known), -1)
    assert (scores.argmax(axis=1) == (np.arange(len(known)) + 4) % len(known)).mean() > 0.9
