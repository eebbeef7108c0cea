"""The attributes of an item become the inputs that export has made of the items table, so that a new item is read as one of the table."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.export.attributes import attribute_columns, write_seed
from pipelines.export.new_items import new_items
from pipelines.features.raw import item_columns, signature
from services.gateway.attributes import AttributeBuilder
from services.gateway.loaded_version import LoadedVersion
from services.gateway.new_items import EMPTY, CatalogueViews
from shared.contracts.items_table import NEW_ITEMS, NewItems, part_name, read_part
from shared.ports import CatalogueItem
from tests.support.feature_graphs import fitted
from tests.support.refitted import Stages
from tests.unit.pipelines.recommender import ratings, spec

AT = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = 20
FEATURES = [
    {"categorify": ["userId", "movieId", "year", "studio"]},
    {"multi_hot": "genres", "separator": "|"},
    {"multi_hot": "tags"},
    {"multi_hot": "sizes", "max_length": 2},
    {"fill": "price"},
    {"normalise": "price"},
    {"calendar": {"of": "released", "parts": ["hour"]}},
    {"extract": {"of": "title", "what": "hashtags", "as": "marks"}},
    {"multi_hot": "marks"},
]


def table(seed: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)

    def words(most: int) -> list[str]:
        return [f"word{number}" * (1 + number % 3) for number in random.integers(0, 9, random.integers(0, most + 1))]

    def sometimes(values: list[object]) -> list[object]:
        return [None if random.random() < 0.2 else value for value in values]

    return pl.DataFrame(
        {
            "movieId": range(1, COUNT + 1),
            "year": sometimes(random.integers(1950, 2020, COUNT).tolist()),
            "studio": sometimes([f"st{number}" for number in random.integers(0, 5, COUNT)]),
            "genres": sometimes(["|".join(words(4)) for _ in range(COUNT)]),
            "tags": sometimes([words(3) for _ in range(COUNT)]),
            "sizes": sometimes([random.integers(0, 9, random.integers(0, 4)).tolist() for _ in range(COUNT)]),
            "price": pl.Series(sometimes(random.normal(size=COUNT).round(3).tolist()), dtype=pl.Float64),
            "released": sometimes([AT.replace(tzinfo=None) + timedelta(seconds=float(random.normal() * 1e7)) for _ in range(COUNT)]),
            "title": sometimes([" ".join(f"#{word}" for word in words(3)) for _ in range(COUNT)]),
        },
        schema_overrides={"tags": pl.List(pl.String), "sizes": pl.List(pl.Int64)},
    )


def exported(folder: Path, items: pl.DataFrame) -> tuple[LoadedVersion, NewItems, list[CatalogueItem]]:
    """A version with all rows of the table, and the catalogue that its seed makes."""
    rows = ratings().select(user="userId", item="movieId", time="at", label=(pl.col("rating") >= 4).cast(pl.Int8)).lazy()
    prepared = fitted(spec(folder, features=FEATURES), rows, items, folder=folder / "history")
    served = signature(prepared.graph)
    kinds = attribute_columns(items, "movieId", {}).kinds
    columns = item_columns(prepared.items, served)
    keys = columns["movieId"]
    version = LoadedVersion(1, "userId", "movieId", columns, keys, keys, keys[:0], keys[:0], None, np.argsort(keys), np.sort(keys))
    write_seed(items, "movieId", kinds, AT, lambda name: folder / name)
    seeds = read_part((folder / part_name(0)).read_bytes())
    catalogue = [CatalogueItem(item, attributes, created_at=AT + timedelta(seconds=item)) for item, _, attributes in seeds]
    return version, new_items(prepared.graph, served, kinds, AT), catalogue


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("seed", range(8))
def test_a_new_item_is_read_as_an_item_of_the_table(tmp_path: Path, seed: int) -> None:
    version, reading, catalogue = exported(tmp_path, table(seed))
    assert reading.unknown == ("marks",), "no attribute has what is extracted from a text"
    half = COUNT // 2
    own = {name: column[:half] for name, column in version.columns.items()}
    keys = own["movieId"]
    half_version = replace(
        version, columns=own, items=keys, popular=keys, _by_key=np.argsort(keys), _sorted=np.sort(keys), new_items=reading
    )
    view = CatalogueViews().view("films", [half_version], AttributeBuilder().take(catalogue), True, EMPTY)
    extended = view.unit(half_version)
    assert extended.items.tolist() == [*keys.tolist(), *sorted(version.items[half:].tolist(), reverse=True)]
    rows = extended.rows(version.items.tolist())
    for name, column in version.columns.items():
        values = extended.columns[name][rows]
        if name == "marks":
            assert (values[half:] == "").all()
            continue
        longest = own[name].dtype.itemsize // 4 if column.dtype.kind == "U" else 0
        for before, after in zip(column.tolist(), values.tolist(), strict=True):
            expected, value = (each if isinstance(each, list) else [each] for each in (before, after))
            if longest:
                expected = [word if len(word) <= longest else "\uffff" * longest for word in expected]
            np.testing.assert_array_equal(value, expected, err_msg=name)


@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("has_table", [True, False])
def test_items_before_the_table_are_removed_ones_and_without_a_table_every_item_is_new(tmp_path: Path, has_table: bool) -> None:
    stages = Stages(tmp_path)
    tables = {"interactions": {"uri": str(tmp_path / "ratings.parquet")}}
    if has_table:
        tables["items"] = {"uri": str(tmp_path / "items.parquet"), "key": "item"}
    features = [{"categorify": ["user", "item"]}]
    stages.run(stages.spec(data=tables, features=features, model={"family": "popularity"}))
    reading = NewItems.model_validate_json(stages.done["export"].files[NEW_ITEMS].read_text())
    table_at = datetime.fromtimestamp((tmp_path / "items.parquet").stat().st_mtime, UTC) - timedelta(minutes=10)
    expected = table_at if has_table else datetime(1970, 1, 1, tzinfo=UTC)
    assert abs(reading.since - expected) < timedelta(seconds=1)
    assert (reading.inputs, reading.unknown) == ((), ())
