"""What columns are to a model, told from their types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.columns import Column
from pipelines.loaders.kinds import Kind
from pipelines.loaders.loader import Loader, open_loader
from shared.domain.errors import Invalid


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    table = pa.table(
        {
            "user": pa.array([1, 2, 3], pa.int64()),
            "new": pa.array([True, False, True]),
            "genres": pa.array([[1], [], [2, 3]], pa.list_(pa.int16())),
            "three": pa.array([[1, 2, 3]] * 3, pa.list_(pa.int32(), 3)),
            "price": pa.array([1.0, 2.0, None], pa.float32()),
            "vector": pa.array([[0.5, 1.0]] * 3, pa.list_(pa.float64(), 2)),
            "label": pa.array([1.0, 0.0, 1.0], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    return open_loader(tmp_path / "rows.parquet", batch_size=2)


@pytest.mark.requirement("T-04")
def test_kinds_follow_from_the_schema(loader: Loader) -> None:
    assert loader.kinds() == {
        "user": Kind.SINGLE_HOT,
        "new": Kind.SINGLE_HOT,
        "genres": Kind.MULTI_HOT,
        "three": Kind.MULTI_HOT,
        "price": Kind.CONTINUOUS,
        "vector": Kind.CONTINUOUS,
        "label": Kind.LABEL,
    }


def test_the_label_may_be_named(loader: Loader) -> None:
    kinds = loader.kinds("new")
    assert (kinds["new"], kinds["label"]) == (Kind.LABEL, Kind.CONTINUOUS)


def test_a_label_that_is_not_there_or_has_lists_is_refused_by_name(loader: Loader) -> None:
    with pytest.raises(Invalid, match="label: unknown column 'prise': did you mean 'price'"):
        loader.kinds("prise")
    with pytest.raises(Invalid, match="column 'genres' has lists"):
        loader.kinds("genres")


def test_columns_are_described_as_batches_have_them(loader: Loader) -> None:
    batch = next(iter(loader.epoch(0)))
    for name, one in batch.items():
        said = loader.columns[name]
        assert said.dtype == one.dtype
        assert said.lists is not isinstance(one, np.ndarray)
        assert said.width == (one.shape[1] if isinstance(one, np.ndarray) and one.ndim > 1 else None)


def test_what_stages_make_is_described_too(loader: Loader) -> None:
    def twice(columns: dict[str, Column], _: np.random.Generator) -> dict[str, Column]:
        price = columns["price"]
        assert isinstance(price, np.ndarray)
        return {"twice": np.stack([price, price], axis=1).astype(np.float64), "genres": columns["genres"]}

    columns = replace(loader, stages=(twice,)).columns
    assert list(columns) == ["twice", "genres"]
    assert (columns["twice"].dtype, columns["twice"].width, columns["genres"].lists) == (np.float64, 2, True)
