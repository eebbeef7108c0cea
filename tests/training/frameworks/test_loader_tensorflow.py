"""A loader's batches as a tf.data.Dataset: the same rows with their lists, in every layout, in a strategy and in model.fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.adapters.layout import Dense, PaddedLayout
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import Loader, open_loader
from pipelines.loaders.plan import Shard
from pipelines.models.runtime import load_tensorflow
from shared.domain.errors import Invalid

ROWS = 1_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    genres = [random.integers(0, 9, count).tolist() for count in random.integers(0, 5, ROWS)]
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "genres": pa.array(genres, pa.list_(pa.int32())),
            "pair": pa.array(random.random((ROWS, 2)).tolist(), pa.list_(pa.float32(), 2)),
            "label": (np.arange(ROWS) % 2).astype(np.float32),
        }
    )
    found = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table, found, row_group_size=170)
    return found


def opened(path: Path, **settings: Any) -> Loader:
    return open_loader(path, **({"batch_size": 64, "seed": 3} | settings))


def ids(dataset: Any) -> list[int]:
    return [one for columns, _ in dataset for one in columns["id"].numpy().tolist()]


def expected(loader: Loader, epoch: int, start: int = 0) -> list[int]:
    return [one for batch in loader.epoch(epoch, start) for one in np.asarray(batch["id"]).tolist()]


def test_batches_are_the_loaders_own_with_lists_as_ragged_tensors(path: Path) -> None:
    loader = opened(path)
    dataset = loader.as_dataset()
    assert int(dataset.cardinality()) == len(loader) == 16
    held = list(dataset)  # all at once: no batch may lie in memory that the next one is written to
    for (columns, label), batch in zip(held, loader.epoch(0), strict=True):
        assert list(columns) == ["id", "genres", "pair"]
        genres = batch["genres"]
        assert isinstance(genres, ListColumn)
        assert columns["genres"].row_splits.numpy().tolist() == genres.offsets.tolist()
        assert columns["genres"].flat_values.numpy().tolist() == genres.values.tolist()
        for name, tensor in (("id", columns["id"]), ("pair", columns["pair"]), ("label", label)):
            array = batch[name]
            assert isinstance(array, np.ndarray)
            assert tensor.dtype.as_numpy_dtype == array.dtype
            assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize(
    ("lists", "parts"),
    [
        ("offsets", {"genres__values": (None,), "genres__offsets": (None,)}),
        ("lengths", {"genres__values": (None,), "genres__lengths": (None,)}),
        ("padded", {"genres": (None, None)}),
        (PaddedLayout(2, longer="cut"), {"genres": (None, 2)}),
        (Dense(9), {"genres": (None, 9)}),
    ],
)
def test_shapes_are_known_before_anything_is_read(path: Path, lists: Any, parts: dict[str, Any]) -> None:
    dataset = opened(path).as_dataset(lists=lists)
    spec, _ = dataset.element_spec
    assert {name: tuple(one.shape) for name, one in spec.items() if name.startswith("genres")} == parts
    for columns, _ in dataset:
        assert all(spec[name].is_compatible_with(one) for name, one in columns.items())


def test_each_iteration_is_another_epoch_with_every_row_once(path: Path) -> None:
    loader = opened(path)
    dataset = loader.as_dataset()
    first, second = ids(dataset), ids(dataset)
    assert first != second
    assert (first, second) == (expected(loader, 0), expected(loader, 1))
    assert sorted(first) == sorted(second) == list(range(ROWS))


def test_several_epochs_at_a_time_and_on_from_the_middle_of_one(path: Path) -> None:
    loader = opened(path)
    both = loader.as_dataset(epochs=2)
    assert int(both.cardinality()) == 32
    assert ids(both) == expected(loader, 0) + expected(loader, 1)
    assert ids(both) == expected(loader, 2) + expected(loader, 3)
    resumed = loader.as_dataset(start=(4, 5))
    assert ids(resumed) == expected(loader, 4, 5)
    assert ids(resumed) == expected(loader, 5)


def test_without_an_end_epochs_follow_each_other(path: Path) -> None:
    tf, loader = load_tensorflow(), opened(path)
    endless = loader.as_dataset(epochs=None, start=(1, 2))
    assert int(endless.cardinality()) == tf.data.INFINITE_CARDINALITY
    assert ids(endless.take(14 + 16)) == expected(loader, 1, 2) + expected(loader, 2)
    assert ids(endless.take(3)) == expected(loader, 1, 2)[: 3 * 64]


def test_two_iterations_at_a_time_do_not_disturb_each_other(path: Path) -> None:
    loader = opened(path)
    dataset = loader.as_dataset()
    pairs = [(one["id"].numpy().tolist(), other["id"].numpy().tolist()) for (one, _), (other, _) in zip(dataset, dataset, strict=True)]
    assert [row for one, _ in pairs for row in one] == expected(loader, 0)
    assert [row for _, other in pairs for row in other] == expected(loader, 1)


def test_an_iteration_that_is_given_up_lets_its_threads_go(path: Path) -> None:
    import threading

    before = threading.active_count()
    dataset = opened(path, batch_size=8).as_dataset()
    iterator = iter(dataset)
    next(iterator)
    assert threading.active_count() > before
    del iterator
    for thread in [one for one in threading.enumerate() if one.name.startswith(("decoding", "assembling"))]:
        thread.join(20)
        assert not thread.is_alive()


def test_shards_of_a_strategy_share_the_rows(path: Path) -> None:
    tf = load_tensorflow()
    found: list[int] = []
    for rank in range(3):
        loader = opened(path, shard=Shard(rank, 3))
        dataset = tf.distribute.get_strategy().experimental_distribute_dataset(loader.as_dataset())
        found += ids(dataset)
    assert Counter(found) == Counter(range(ROWS))


def test_without_a_label_there_are_columns_alone(path: Path) -> None:
    loader = opened(path)
    dataset = open_loader(path, ["id", "genres"], batch_size=64).as_dataset()
    assert list(dataset.element_spec) == ["id", "genres"]
    columns, label = next(iter(loader.as_dataset("id")))
    assert (list(columns), str(label.dtype)) == (["genres", "pair", "label"], "<dtype: 'int64'>")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"label": "lable"}, "label: unknown column 'lable': did you mean 'label'"),
        ({"lists": {"genre": "padded"}}, "lists: unknown column 'genre': did you mean 'genres'"),
        ({"start": (0, 16)}, "start: epoch 0, batch 16: .* batches are 0 to 15"),
        ({"start": (-1, 0)}, "start: epoch -1"),
        ({"epochs": 0}, "epochs: must be at least 1"),
    ],
)
def test_what_can_not_be_is_refused_where_it_is_asked_for(path: Path, asked: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        opened(path).as_dataset(**asked)


def test_a_batch_that_can_not_be_made_says_why(path: Path) -> None:
    tf = load_tensorflow()
    with pytest.raises(tf.errors.OpError, match="column 'genres' has a list of 4 values, padded lists have width 3"):
        list(opened(path).as_dataset(lists=PaddedLayout(3)))
