"""Tables that are joined with interactions: one row per key, sorted by key.

The items table is the ranked catalogue; items are addressed by their row. The users table may lack users.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from pipelines.data.ids import check_table_keys, keyed, text_of
from pipelines.data.interactions import open_interactions
from pipelines.data.pages import check_items
from pipelines.data.sources import ReadableRoots, SourceRows, open_source, readable
from pipelines.data.validate import check_key_types
from shared.contracts.data import Table
from shared.contracts.spec import RecommenderSpec
from shared.domain.entity_ids import IdKind


def open_items(spec: RecommenderSpec, reach: ReadableRoots, further: Sequence[pl.LazyFrame] = ()) -> SourceRows:
    """Opens the items table; without one, the items of the interactions and `further` ones: frames with the item's key, and its text."""
    if spec.data.items is not None:
        return _open(spec.data.items, reach, reach.kinds.item)
    interactions, key = open_interactions(spec, reach), spec.schema_.item
    columns = pl.selectors.by_name(key, text_of(key), require_all=False)
    items = pl.concat([interactions.frame.select(columns).cast({key: pl.Int64}), *further], how="diagonal").filter(
        pl.col(key).is_not_null()
    )
    path = reach.scratch / "items.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with readable(interactions.name):
        items.unique().sort(pl.all()).sink_parquet(path)
    return SourceRows(f"items of {interactions.name}", (path,), pl.scan_parquet(path))


def open_users(spec: RecommenderSpec, reach: ReadableRoots) -> SourceRows | None:
    """Opens the users table. Leaves out all rows of forgotten users, because the table has no times."""
    if spec.data.users is None:
        return None
    key = spec.data.users.key
    return _open(spec.data.users, reach, reach.kinds.user).mapped(lambda frame: reach.forgotten.without(frame, key, None))


def read_items(source: SourceRows, spec: RecommenderSpec) -> pl.DataFrame:
    """Returns all columns; the key has the name of the schema's item column."""
    items = _read(source, spec.items_table().key, spec.schema_.item)
    if spec.schema_.page:
        check_items(items[spec.schema_.item], source.name)
    return items


def read_users(source: SourceRows, spec: RecommenderSpec) -> pl.DataFrame:
    """Returns all columns; the key has the name of the schema's user column."""
    assert spec.data.users is not None
    return _read(source, spec.data.users.key, spec.schema_.user)


def _open(table: Table, reach: ReadableRoots, kind: IdKind | None) -> SourceRows:
    """Opens a table. Without types in the file, keys and columns with a range are read as text: validation (pipelines/data/validation) then
    reports bad numbers per row."""
    source = open_source(table, reach, (table.key,), as_text=(table.key, *table.validate_.range))
    if kind == "text" or source.has_types:
        source = keyed(source, table.key, kind, reach.ids)
    if source.has_types:
        check_key_types(source, (table.key,))
    return source


def _read(source: SourceRows, key: str, named: str) -> pl.DataFrame:
    with readable(source.name):
        frame = source.frame.collect()
    check_table_keys(frame, key, source.name)
    if key != named:
        frame = frame.drop(named, strict=False).rename({key: named, text_of(key): text_of(named)}, strict=False)
    return frame.with_columns(pl.col(named).cast(pl.Int64)).sort(named)
