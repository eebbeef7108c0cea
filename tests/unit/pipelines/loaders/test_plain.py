"""Batches without a framework: the loader's own, as arrays and as Arrow."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.adapters.layout import PaddedLayout
from pipelines.loaders.columns import ListColumn
from pipelines.loaders.loader import Loader, open_loader
from shared.domain.errors import Invalid

ROWS = 100


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    rows = {
        "id": pa.array(range(ROWS), pa.int32()),
        "genres": pa.array([list(range(n % 4)) for n in range(ROWS)], pa.list_(pa.int64())),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * ROWS, dtype=np.float32)), 2),
        "sure": pa.array([n % 3 == 0 for n in range(ROWS)]),
        "label": pa.array([n % 2 for n in range(ROWS)], pa.float32()),
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet", row_group_size=30)
    return open_loader(tmp_path, batch_size=16, seed=3)


@pytest.mark.requirement("T-03", "T-05")
def test_arrays_with_their_label_and_lists_as_chosen(loader: Loader) -> None:
    batches = list(loader.as_numpy())
    assert len(batches) == len(loader)
    for (columns, label), own in zip(batches, loader.epoch(0), strict=True):
        genres = own["genres"]
        assert isinstance(genres, ListColumn)
        assert set(columns) == {"id", "genres__values", "genres__offsets", "vector", "sure"}
        assert (label == columns["id"] % 2).all()
        assert (columns["id"] == own["id"]).all()
        assert (columns["vector"][:, 0] == 2 * columns["id"]).all()
        assert (columns["genres__offsets"] == genres.offsets).all()
        assert (columns["genres__values"] == genres.values).all()
    padded = next(loader.as_numpy("sure", lists=PaddedLayout(3, value=-1)))
    assert padded[0]["genres"].tolist() == [[*range(n % 4), *[-1] * (3 - n % 4)] for n in padded[0]["id"].tolist()]
    assert padded[1].dtype == np.bool_


@pytest.mark.requirement("T-03")
def test_epochs_follow_each_other_and_begin_where_it_is_said(loader: Loader) -> None:
    ids = [columns["id"].tolist() for columns, _ in loader.as_numpy(epochs=2)]
    steps = len(loader)
    assert ids[:steps] != ids[steps:]
    assert ids[steps:] == [one["id"].tolist() for one in loader.epoch(1)]  # type: ignore[union-attr]
    assert [columns["id"].tolist() for columns, _ in loader.as_numpy(epochs=1, start=(1, 4))] == ids[steps + 4 :]
    assert [columns["id"].tolist() for columns, _ in islice(loader.as_numpy(epochs=None), 2 * steps)] == ids


@pytest.mark.requirement("T-03")
def test_record_batches_are_the_rows_again(loader: Loader, tmp_path: Path) -> None:
    found = pa.Table.from_batches(loader.as_arrow())
    assert found.schema.types == [pa.int32(), pa.large_list(pa.int64()), pa.list_(pa.float32(), 2), pa.bool_(), pa.float32()]
    known = pq.read_table(tmp_path / "rows.parquet")
    assert found.sort_by("id").to_pylist() == known.to_pylist()
    assert found["id"].to_pylist() != known["id"].to_pylist()


def test_what_can_not_be_had_is_said(loader: Loader) -> None:
    with pytest.raises(Invalid, match="column 'genres': NumPy has no ragged arrays"):
        loader.as_numpy(lists="ragged")
    with pytest.raises(Invalid, match="epochs: must be at least 1, or None for no end; not 0"):
        loader.as_arrow(epochs=0)
