"""The session transformer is trained on sequences of rows: it predicts the next item of strangers too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.features.columns import FIRST
from pipelines.features.prepared import FEATURE
from pipelines.models.session import Session
from shared.domain.errors import Invalid
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


@pytest.mark.requirement("G-09")
def test_a_warm_run_continues_from_the_vectors_of_items_and_of_features(tmp_path: Path) -> None:
    """Almost without learning, all scores stay, also those of items without a code."""
    world = small(tmp_path, "sequence_and_items")
    params = {"width": 8, "blocks": 1}
    parent = world.train("session", params=params, train={"epochs": 5, "learning_rate": 0.01})
    files = parent.save(tmp_path)
    task = world.task("session", params=params, train={"epochs": 1, "learning_rate": 1e-6})
    child = Session().train(replace(task, parent=files.__getitem__)).model
    columns = dict(world.codes)
    columns[world.graph.item] = np.where(np.arange(len(world.catalogue)) % 2, 1, columns[world.graph.item]).astype(np.int32)
    scores = parent.score(columns)
    assert np.unique(scores.round(3)).size > len(world.catalogue) // 2
    np.testing.assert_allclose(child.score(columns), scores, atol=2e-3)
    keys = tmp_path / "keys"
    keys.mkdir()
    with pytest.raises(Invalid, match="'unknown_items' has no effect, because items have no features besides the key"):
        small(keys, "sequence").train("session", params={"unknown_items": 0.1})
