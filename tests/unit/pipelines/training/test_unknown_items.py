"""Training rows for new items: some rows show an unknown item, and items that nobody could like yet are no negatives."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from pipelines.features.columns import UNKNOWN
from pipelines.inputs.batch_stages import OWN_ITEM, UNKNOWN_SHARE
from pipelines.inputs.batches import Batches, TrainingBatch
from pipelines.inputs.tables import read_table
from pipelines.models.family import Task
from pipelines.models.neural.losses import InBatch
from pipelines.models.popularity_baseline import fit_popularity
from pipelines.training.trainer import batches_of
from shared.contracts.models import Model
from tests.support.feature_graphs import fitted
from tests.unit.pipelines.recommender import films, ratings, spec

KNOWN, ITEMS = 15, 20
KEYS: dict[str, Any] = {"features": [{"categorify": ["userId", "movieId"]}]}


def task(folder: Path, params: dict[str, Any], **changes: Any) -> Task:
    """A task whose last items have no row."""
    rows = ratings(3_000).filter(pl.col("movieId") <= KNOWN)
    liked = (pl.col("rating") >= 4).cast(pl.Int8)
    interactions = rows.select(user="userId", item="movieId", time="at", label=liked).lazy()
    prepared = fitted(spec(folder, **changes), interactions, films(ITEMS), folder=folder / "history")
    prepared.write_rows(interactions, interactions.head(1), None, (folder / "train.parquet", folder / "holdout.parquet"))
    prepared.graph.table(prepared.items.lazy(), "item").collect().write_parquet(folder / "items.features.parquet")
    items = read_table(folder / "items.features.parquet", prepared.graph, "item")
    popularity = fit_popularity(interactions, prepared.items["movieId"])
    model = Model.model_validate({"family": "mlp", "params": params})
    return Task(model, prepared.graph, folder / "train.parquet", items, None, popularity, logging.getLogger("test"))


def shown(batches: Batches) -> dict[str, NDArray[Any]]:
    parts = [batch.columns for batch in batches.epoch(0)]
    return {name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]}


@pytest.mark.parametrize(("params", "share"), [({}, 0.1), ({"unknown_items": 0.3}, 0.3), ({"unknown_items": 0}, 0.0)])
def test_items_without_rows_are_no_negatives_and_a_share_of_the_rows_shows_an_unknown_item(
    tmp_path: Path, params: dict[str, Any], share: float
) -> None:
    training = task(tmp_path, params)
    batches = batches_of(training, 256, 4, None, 2**26)
    codes = training.items.columns["movieId"]
    assert batches.drawable is not None
    np.testing.assert_array_equal(batches.drawable, np.flatnonzero(codes != UNKNOWN))
    assert len(batches.drawable) == KNOWN
    columns = shown(batches)
    assert set(columns[OWN_ITEM].tolist()) == set(codes[codes != UNKNOWN].tolist())
    hidden = columns["movieId"] == UNKNOWN
    assert abs(hidden.mean() - share) < 0.02
    np.testing.assert_array_equal(columns["movieId"][~hidden], columns[OWN_ITEM][~hidden])
    years = dict(zip(codes.tolist(), training.items.columns["year"].tolist(), strict=True))
    assert columns["year"].tolist() == [years[code] for code in columns[OWN_ITEM].tolist()], "an unknown item keeps its other features"


def test_with_hash_buckets_too_items_without_rows_are_no_negatives(tmp_path: Path) -> None:
    features = [{"categorify": ["userId"]}, {"categorify": ["movieId"], "min_count": 2, "hash_buckets": 50}, {"categorify": ["year"]}]
    batches = batches_of(task(tmp_path, {}, features=features), 256, 4, None, 2**26)
    assert batches.drawable is not None and len(batches.drawable) == KNOWN
    assert batches.unknown_items == UNKNOWN_SHARE, "all rows with an unknown item show one bucket"


def test_of_keys_alone_every_item_is_a_negative_since_nothing_tells_new_items_apart(tmp_path: Path) -> None:
    batches = batches_of(task(tmp_path, {}, **KEYS), 256, 4, None, 2**26)
    assert batches.drawable is None
    columns = shown(batches)
    assert OWN_ITEM not in columns
    assert 0.1 < (columns["movieId"] == UNKNOWN).mean() < 0.3, "five of twenty items have no code"


def test_among_a_batch_a_row_that_shows_an_unknown_item_counts_as_its_own() -> None:
    loss = InBatch("user_vector", "item_vector", "item", np.log(np.array([0.5, 0.5, 1.0, 3.0], np.float32)))
    columns = {"item": np.array([2, UNKNOWN, 3], np.int32), OWN_ITEM: np.array([2, 3, 3], np.int32)}
    targets = loss.targets(TrainingBatch(columns, np.ones(3, np.float32)))
    assert targets["items"].tolist() == [2, 3, 3]
    np.testing.assert_allclose(targets["chances"], np.log([1.0, 3.0, 3.0]), rtol=1e-6)
