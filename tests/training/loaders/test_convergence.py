"""A pool of several chunks, much smaller than the data, trains as well as a full shuffle where the order of rows hurts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from pipelines.loaders.loader import open_loader

ROWS, WIDTH, BATCH = 24_000, 6, 64
SEEDS = range(6)
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def rows() -> tuple[Floats, Floats, Floats]:
    """What is known of each row, whether it's liked, and whose it is: users like unlike shares of what they see."""
    random = np.random.default_rng(8)
    user = random.integers(0, 60, ROWS)
    known = random.normal(size=(ROWS, WIDTH))
    leaning = np.linspace(-4, 4, 60)[user]
    liked = random.random(ROWS) < 1 / (1 + np.exp(-(known @ np.array([2.0, -1.0, 0.5, 0, 0, 1.0]) + leaning)))
    return known, liked.astype(np.float64), user.astype(np.float64)


def _loss(batches: Iterator[tuple[Floats, Floats]], known: Floats, liked: Floats) -> float:
    """Of a logistic regression after one pass, on all rows."""
    weights = np.zeros(WIDTH + 1)
    for some, labels in batches:
        with_one = np.column_stack([some, np.ones(len(some))])
        weights -= 0.3 * with_one.T @ (1 / (1 + np.exp(-with_one @ weights)) - labels) / len(labels)
    chance = 1 / (1 + np.exp(-np.column_stack([known, np.ones(len(known))]) @ weights))
    right = np.clip(np.where(liked > 0, chance, 1 - chance), 1e-7, 1)
    return float(-np.log(right).mean())


@pytest.mark.requirement("L-01")
@pytest.mark.parametrize("by", ["label", "user"])
def test_a_pool_of_a_twentieth_of_the_rows_trains_as_a_full_shuffle_does_and_none_does_not(
    rows: tuple[Floats, Floats, Floats], by: str, tmp_path: Path
) -> None:
    known, liked, user = rows
    order = np.argsort(liked if by == "label" else user, kind="stable")
    names = [f"x{n}" for n in range(WIDTH)]
    path = tmp_path / "rows.parquet"
    pl.DataFrame({**dict(zip(names, known[order].T, strict=True)), "label": liked[order]}).write_parquet(path, row_group_size=ROWS // 400)

    def read(seed: int, shuffle: bool) -> Iterator[tuple[Floats, Floats]]:
        loader = open_loader(path, batch_size=BATCH, pool=ROWS // 20, seed=seed, shuffle=shuffle)
        assert max(len(pool.parts) for pool in loader.plan.pools(0)) <= 21 and len(loader.plan.sizes) == 400
        for batch in loader.epoch(0):
            columns = {name: np.asarray(batch[name]) for name in (*names, "label")}
            yield np.column_stack([columns[name] for name in names]), columns["label"]

    def full(seed: int) -> Iterator[tuple[Floats, Floats]]:
        drawn = np.random.default_rng(seed).permutation(ROWS)
        for start in range(0, ROWS, BATCH):
            yield known[drawn[start : start + BATCH]], liked[drawn[start : start + BATCH]]

    best = [_loss(full(seed), known, liked) for seed in SEEDS]
    pool = [_loss(read(seed, True), known, liked) for seed in SEEDS]
    none = _loss(read(0, False), known, liked)
    assert none > 1.3 * np.mean(best)
    assert np.mean(pool) < 1.02 * np.mean(best)
