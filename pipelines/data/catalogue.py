"""The items table: the catalogue that is ranked, one row an item, ordered by key so that a row's number means something."""

from __future__ import annotations

import polars as pl

from pipelines.data.sources import Source, open_source, readable
from pipelines.data.validate import check_fits, check_items
from shared.contracts.spec import Categorify, RecommenderSpec
from shared.domain.errors import BadData


def open_items(spec: RecommenderSpec, roots: tuple[str, ...]) -> Source:
    table = spec.data.items
    source = open_source(table.uri, roots, (table.key,))
    check_items(source, table.key)
    schema = source.frame.collect_schema()
    for operator in spec.operators():
        for column in operator.categorify if isinstance(operator, Categorify) else ():
            if column in schema:
                check_fits(source, column)
    return source


def read_items(source: Source, spec: RecommenderSpec) -> pl.DataFrame:
    """All columns, the key named as the schema's item column."""
    key, item = spec.data.items.key, spec.schema_.item
    with readable(source.name):
        frame = source.frame.collect()
    if key != item:
        frame = frame.drop(item, strict=False).rename({key: item})
    return frame.with_columns(pl.col(item).cast(pl.Int64)).sort(item)


def keep_known(frame: pl.LazyFrame, items: pl.DataFrame, item: str, name: str, table: str) -> tuple[pl.LazyFrame, int]:
    """Drops interactions with items that the table lacks; refuses when that is all of them."""
    known = pl.col("item").is_in(items[item].implode())
    total, kept = frame.select(pl.len(), known.sum()).collect(engine="streaming").row(0)
    if total and not kept:
        raise BadData(f"{name}: none of its items are in the items table {table}; check data.items.key")
    return (frame.filter(known) if kept < total else frame), int(total - kept)
