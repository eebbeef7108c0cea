"""The loader's promises: whole batches, seeded, negatives anew each epoch, nothing lost and nothing doubled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines.features.columns import UNKNOWN
from pipelines.features.prepared import graph_of, prepare
from pipelines.inputs.batches import Batches, TrainingBatch, cut
from pipelines.inputs.bloom_filter import LikedItems
from pipelines.inputs.tables import FeatureTable, read_table
from tests.support.feature_graphs import of_keys
from tests.unit.pipelines.recommender import films, ratings, spec

ROWS, ITEMS = 10_000, 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "train.parquet"
    number = pl.int_range(ROWS, dtype=pl.Int32, eager=True)
    frame = pl.DataFrame({"user_code": number, "item_row": number % ITEMS, "label": (number % 4 == 0).cast(pl.Int8)})
    frame.write_parquet(path, row_group_size=700)
    return path


def _batches(path: Path, negatives: int = 0, unknown_share: float = 0.0, seed: int = 5, shuffle: bool = True) -> Batches:
    items = {"item": np.arange(ITEMS, dtype=np.int32) + 2, "genres": np.arange(ITEMS * 3, dtype=np.int32).reshape(ITEMS, 3)}
    return Batches(path, of_keys(2, ITEMS), FeatureTable(items, {}), None, 512, negatives, seed, shuffle, unknown_share, unknown_share)


def _users(batches: list[TrainingBatch]) -> list[int]:
    return np.concatenate([batch.columns["user"] for batch in batches]).tolist()


@pytest.mark.requirement("T-01")
def test_an_epoch_is_whole_batches_and_every_row_once(path: Path) -> None:
    epoch = list(_batches(path).epoch(0))
    assert {len(batch.labels) for batch in epoch[:-1]} == {512}
    users = _users(epoch)
    assert sorted(users) == list(range(ROWS)) and users != list(range(ROWS))
    assert len(users) == _batches(path).rows_per_epoch()


def test_item_columns_and_labels_stay_with_their_row(path: Path) -> None:
    for batch in _batches(path).epoch(0):
        users = batch.columns["user"]
        np.testing.assert_array_equal(batch.columns["item"], users % ITEMS + 2)
        np.testing.assert_array_equal(batch.columns["genres"][:, 0], users % ITEMS * 3)
        np.testing.assert_array_equal(batch.labels, users % 4 == 0)


@pytest.mark.requirement("U-04")
def test_labels_are_the_weights_of_positives(path: Path) -> None:
    weight = pl.when(pl.col("user_code") % 8 == 0).then(5.0).otherwise(0.5).cast(pl.Float32)
    pl.read_parquet(path).with_columns(weight=weight).write_parquet(path, row_group_size=700)
    batches = list(_batches(path, negatives=2).epoch(0))
    users, labels = np.array(_users(batches)), np.concatenate([batch.labels for batch in batches])
    positive = labels > 0
    assert np.count_nonzero(positive) == ROWS // 4
    np.testing.assert_array_equal(labels[positive], np.where(users[positive] % 8 == 0, 5, 0.5))
    assert set(users[positive] % 4) == {0}


def test_one_seed_gives_one_order_and_each_epoch_another(path: Path) -> None:
    first, again = (_users(list(_batches(path, negatives=2).epoch(0))) for _ in range(2))
    assert first == again
    assert first != _users(list(_batches(path, negatives=2).epoch(1)))
    assert first != _users(list(_batches(path, negatives=2, seed=6).epoch(0)))


def test_each_positive_gets_its_negatives_from_the_whole_catalogue(path: Path) -> None:
    epoch = list(_batches(path, negatives=3).epoch(0))
    users, labels = np.array(_users(epoch)), np.concatenate([batch.labels for batch in epoch])
    assert len(users) == ROWS + 3 * ROWS // 4 == _batches(path, negatives=3).rows_per_epoch()
    counts = np.bincount(users, minlength=ROWS)
    assert set(counts[::4]) == {4} and set(counts[1::4]) == {1}
    assert labels.sum() == ROWS // 4
    assert len(np.unique(np.concatenate([batch.columns["item"] for batch in epoch]))) == ITEMS


@pytest.mark.requirement("T-01", "N-04")
@pytest.mark.parametrize(("size", "negatives"), [(512, 3), (7, 5), (40_000, 1)])
def test_a_step_takes_as_many_rows_as_it_says_whatever_negatives_are_among_them(path: Path, size: int, negatives: int) -> None:
    batches = replace(_batches(path, negatives), batch_size=size)
    epoch = list(batches.epoch(0))
    assert {len(batch) for batch in epoch[:-1]} <= {size} and len(epoch) == -(-batches.rows_per_epoch() // size)
    assert sum(map(len, epoch)) == batches.rows_per_epoch()
    assert {len(one) for batch in epoch for one in (batch.labels, *batch.columns.values())} <= {size, len(epoch[-1])}


def test_batches_are_cut_without_losing_or_moving_a_row() -> None:
    random = np.random.default_rng(0)
    for size in (1, 5, 64):
        lengths = random.integers(0, 40, 30)
        rows = np.split(np.arange(lengths.sum()), np.cumsum(lengths)[:-1])
        batches = list(cut((TrainingBatch({"a": values, "b": values[:, None]}, values.astype(np.float32)) for values in rows), size))
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        np.testing.assert_array_equal(np.concatenate([batch.labels for batch in batches]), np.arange(lengths.sum()))
        assert all((batch.columns["a"] == batch.labels).all() and (batch.columns["b"][:, 0] == batch.labels).all() for batch in batches)


@pytest.mark.requirement("N-04")
def test_no_negative_is_liked_where_that_is_known(path: Path) -> None:
    frame = pl.read_parquet(path).with_columns(user=pl.col("user_code") % 100, item_row=(pl.col("user_code") // 100) % ITEMS)
    frame = frame.with_columns(pl.col("item_row").cast(pl.Int32), user_code=pl.col("user"))
    frame.write_parquet(path, row_group_size=700)
    liked = frame.filter(pl.col("label") == 1).select("user", "item_row").unique()
    liked_items = LikedItems.of([(liked["user"].to_numpy(), liked["item_row"].to_numpy())])
    for liked_or_none, wrong in ((None, True), (liked_items, False)):
        epoch = list(replace(_batches(path, 2), liked=liked_or_none).epoch(0))
        rows = pl.DataFrame(
            {"user": _users(epoch), "item_row": np.concatenate([batch.columns["item"] for batch in epoch]) - 2}
        ).with_columns(label=np.concatenate([batch.labels for batch in epoch]))
        judged = frame.filter(pl.col("label") == 0).select("user", "item_row").with_columns(pl.col("user").cast(pl.Int64))
        drawn = rows.filter(pl.col("label") == 0).join(judged, on=["user", "item_row"], how="anti")
        met = drawn.join(liked.with_columns(pl.col("user").cast(pl.Int64)), on=["user", "item_row"], how="semi")
        assert (len(met) > 0) == wrong


def test_wide_rows_lie_in_smaller_groups_and_four_of_them_are_shuffled_whatever_memory_there_is(path: Path, tmp_path: Path) -> None:
    batches = replace(_batches(path), memory=1000)
    assert max(len(pool.parts) for pool in batches.loader.plan.pools(0)) >= 4
    assert sorted(_users(list(batches.epoch(0)))) == list(range(ROWS))
    features = [{"categorify": ["userId", "movieId"]}, {"sequence": {"of": "movieId", "by": "userId", "length": 256}}]
    rows = ratings(20_000).select(user="userId", item="movieId", time="at", label=(pl.col("rating") >= 4).cast(pl.Int8)).lazy()
    ready = prepare(graph_of(spec(tmp_path, features=features), {}, films().schema, None, {}), films(), None, rows)
    history = ready.history(rows, rows.head(1), tmp_path / "history")
    ready.fit(rows, None, history).write_rows(rows, rows.head(1), history, (path, tmp_path / "holdout.parquet"))
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert max(sizes) <= 8 * 2**20 // (4 * 256) and sum(sizes) == 20_000


def test_without_shuffling_rows_come_as_they_lie(path: Path) -> None:
    assert _users(list(_batches(path, shuffle=False).epoch(0))) == list(range(ROWS))


def test_a_share_of_rows_is_shown_as_unknown(path: Path) -> None:
    users = np.array(_users(list(_batches(path, unknown_share=0.1).epoch(0))))
    assert 0.08 < (users == UNKNOWN).mean() < 0.12


def test_who_is_shown_as_unknown_has_nothing_that_is_made_of_the_key(tmp_path: Path) -> None:
    features = [
        {"categorify": ["userId", "movieId"]},
        {"count_encode": ["userId", "movieId"]},
        {"lag": {"of": "at", "by": "userId"}},
        {"sequence": {"of": "movieId", "by": "userId", "length": 3}},
    ]
    rows = ratings(400).select(user="userId", item="movieId", time="at", label=(pl.col("rating") >= 4).cast(pl.Int8)).lazy()
    ready = prepare(graph_of(spec(tmp_path, features=features), {}, films().schema, None, {}), films(), None, rows)
    history = ready.history(rows, rows.head(1), tmp_path / "history")
    ready = ready.fit(rows, None, history)
    ready.write_rows(rows, rows.head(1), history, (tmp_path / "train.parquet", tmp_path / "holdout.parquet"))
    assert ready.users is not None
    tables = {}
    for name, table, side in (("items", ready.items, "item"), ("users", ready.users, "user")):
        ready.graph.table(table.lazy(), side).collect().write_parquet(tmp_path / name)  # type: ignore[arg-type]
        tables[name] = read_table(tmp_path / name, ready.graph, side)  # type: ignore[arg-type]
    batches = Batches(tmp_path / "train.parquet", ready.graph, tables["items"], tables["users"], 64, 1, 3, True, 0.3, 0.3)
    whole = [batch.columns for batch in batches.epoch(0)]
    found = {name: np.concatenate([one[name] for one in whole]) for name in whole[0]}
    assert (found["movieId_sequence"][found["userId"] == UNKNOWN] > 0).mean() > 0.5, "in serving, an unknown user has recent likes"
    for key, made in (("userId", ("userId_count", "at_lag")), ("movieId", ("movieId_count",))):
        hidden = found[key] == UNKNOWN
        assert 0.2 < hidden.mean() < 0.4
        for name in made:
            assert (found[name][hidden] == 0).all() and (found[name][~hidden] > 0).mean() > 0.9
