"""Page views in the interactions: rows with a page and no item.

Page views are separated before any counting, and used only in sequences: as user, item (the page's key) and time.
"""

from __future__ import annotations

import polars as pl

from pipelines.data.sources import SourceRows, readable
from pipelines.data.times import is_text, seconds
from shared.contracts.schema import Schema
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import BadData
from shared.domain.pages import PAGES, page_key


def check_page_type(source: SourceRows, column: str) -> None:
    with readable(source.name):
        dtype = source.frame.collect_schema()[column]
    if not (dtype.is_integer() or is_text(dtype)):
        raise BadData(f"{source.name}: column '{column}' is {dtype}; pages must be text or integers")


def check_items(items: pl.Series, name: str) -> None:
    """Raises BadData if an item has a key in the range of pages."""
    clashes = items.to_frame().filter(is_page(pl.col(items.name))).to_series()
    if len(clashes):
        says = f"column '{items.name}' has {clashes[0]}; keys from {PAGES.start} to {PAGES.stop - 1} are reserved for pages (schema.page)"
        raise BadData(f"{name}: {says}; renumber the items")


def is_page(key: pl.Expr) -> pl.Expr:
    return key.is_between(PAGES.start, PAGES.stop - 1)


def is_view(item: str, page: str) -> pl.Expr:
    """Tests for a page view; blank text is not a page."""
    return pl.col(item).is_null() & pl.col(page).is_not_null() & (pl.col(page).cast(pl.String) != "").fill_null(False)


def without_views(frame: pl.LazyFrame, schema: Schema) -> pl.LazyFrame:
    return frame if schema.page is None else frame.filter(~is_view(schema.item, schema.page))


def views(source: SourceRows, spec: RecommenderSpec) -> pl.LazyFrame | None:
    """Returns the page views; None if the spec names no page column."""
    schema = spec.schema_
    if schema.page is None:
        return None
    return source.frame.filter(is_view(schema.item, schema.page)).select(
        user=pl.col(schema.user).cast(pl.Int64),
        item=page_keys(pl.col(schema.page)),
        time=seconds(schema.times, source.frame.collect_schema()[schema.time_column]),
    )


def of_users(page_views: pl.LazyFrame, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the page views of users with interactions."""
    return page_views.join(rows.select("user").unique(), on="user", how="semi")


def page_keys(pages: pl.Expr) -> pl.Expr:
    return pages.cast(pl.String).map_batches(_keys, pl.Int64, is_elementwise=True)


def _keys(pages: pl.Series) -> pl.Series:
    distinct = pages.drop_nulls().unique()
    keys = pl.Series([page_key(page) for page in distinct], dtype=pl.Int64)
    return pages.replace_strict(distinct, keys, default=None, return_dtype=pl.Int64)
