"""The tables that are joined with interactions: one row a key, ordered by it.

The items table is the catalogue that is ranked; an item's row in it means something. The users table may lack users.
"""

from __future__ import annotations

import polars as pl

from pipelines.data.pages import check_items
from pipelines.data.sources import Reach, Source, open_source, readable
from pipelines.data.validate import check_fits, check_table
from shared.contracts.features import mentioned
from shared.contracts.spec import RecommenderSpec, Table
from shared.domain.errors import BadData


def open_items(spec: RecommenderSpec, reach: Reach) -> Source:
    return _open(spec.data.items, spec, reach)


def open_users(spec: RecommenderSpec, reach: Reach) -> Source | None:
    return None if spec.data.users is None else _open(spec.data.users, spec, reach)


def read_items(source: Source, spec: RecommenderSpec) -> pl.DataFrame:
    """All columns, the key named as the schema's item column."""
    items = _read(source, spec.data.items.key, spec.schema_.item)
    if spec.schema_.page:
        check_items(items[spec.schema_.item], source.name)
    return items


def read_users(source: Source, spec: RecommenderSpec) -> pl.DataFrame:
    """All columns, the key named as the schema's user column."""
    assert spec.data.users is not None
    return _read(source, spec.data.users.key, spec.schema_.user)


def _open(table: Table, spec: RecommenderSpec, reach: Reach) -> Source:
    source = open_source(table, reach, (table.key,))
    check_table(source, table.key)
    schema = source.frame.collect_schema()
    for operator in spec.operators():
        for column in mentioned(operator):
            if column in schema:
                check_fits(source, column)
    return source


def _read(source: Source, key: str, named: str) -> pl.DataFrame:
    with readable(source.name):
        frame = source.frame.collect()
    if key != named:
        frame = frame.drop(named, strict=False).rename({key: named})
    return frame.with_columns(pl.col(named).cast(pl.Int64)).sort(named)


def keep_known(frame: pl.LazyFrame, items: pl.DataFrame, item: str, name: str, table: str) -> tuple[pl.LazyFrame, int]:
    """Drops interactions with items that the table lacks; refuses when that is all of them."""
    known = pl.col("item").is_in(items[item].implode())
    total, kept = frame.select(pl.len(), known.sum()).collect(engine="streaming").row(0)
    if total and not kept:
        raise BadData(f"{name}: none of its items are in the items table {table}; check data.items.key")
    return (frame.filter(known) if kept < total else frame), int(total - kept)
