"""The baseline counts what was liked."""

from __future__ import annotations

import polars as pl

from pipelines.models.popularity_baseline import fit_popularity

ITEMS = pl.Series([1, 2, 3, 4])


def test_items_are_ordered_by_their_positives_and_equal_ones_by_key() -> None:
    train = pl.LazyFrame({"item": [3, 3, 2, 2, 4, 1], "label": [1, 1, 1, 0, 1, 0]})
    popularity = fit_popularity(train, ITEMS)
    assert popularity.scores.tolist() == [0, 1, 2, 1]
    assert popularity.ordered().tolist() == [3, 2, 4, 1]


def test_a_warm_run_orders_equal_counts_as_the_parent_did() -> None:
    parent = fit_popularity(pl.LazyFrame({"item": [4, 4, 4, 2], "label": [1, 1, 1, 1]}), ITEMS)
    popularity = fit_popularity(pl.LazyFrame({"item": [1], "label": [1]}), ITEMS, parent)
    assert popularity.ordered().tolist() == [1, 4, 2, 3]
