"""Ids of users and items in data: their kind, and the keys of text ids.

A source with text ids has their int64 keys in the column of the ids, and the text in a further column with the prefix `id.`: everything
after reading works with integers, and reports show the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from pipelines.data.sources import ReadableRoots, SourceRows, open_source, readable
from pipelines.data.times import is_text
from shared.contracts.spec import RecommenderSpec
from shared.domain.entity_ids import IdHash, IdKind, IdKinds
from shared.domain.errors import BadData

PREFIX = "id."
"""Prefix of columns with text ids; no data column has it, because of the dot."""
USER_IDS = "user_ids.parquet"
"""Published file: key and id of each user, if ids are text."""
_ROW_GROUP = 65_536
_LEADING = r"^\s*[-+]?0[0-9]+\s*$"


def text_of(column: str) -> str:
    """Returns the name of the column with the text of a key column."""
    return PREFIX + column


def with_kinds(spec: RecommenderSpec, reach: ReadableRoots) -> ReadableRoots:
    """Finds in the interactions the kinds of ids that are not fixed yet."""
    kinds, columns = reach.kinds, {"user": spec.schema_.user, "item": spec.schema_.item}
    open_columns = [column for entity, column in columns.items() if kinds.of(entity) is None]
    if not open_columns:
        return reach
    source = open_source(spec.data.interactions, reach, tuple(columns.values()), spare=True, as_text=open_columns)
    schema = _schema(source)
    texts = [column for column in open_columns if is_text(schema[column])]
    if texts and not source.has_types:
        with readable(source.name):
            has_text = source.frame.select(_holds_text(column).any().alias(column) for column in texts).collect(engine="streaming")
        texts = [column for column in texts if has_text[column][0]]
    chosen: dict[str, IdKind | None] = {
        entity: kinds.of(entity) or ("text" if column in texts else "integer") for entity, column in columns.items()
    }
    return replace(reach, kinds=IdKinds(chosen["user"], chosen["item"]))


def _holds_text(column: str) -> pl.Expr:
    """Tests for text that is not a number, and for numbers that would lose leading zeros."""
    text = pl.col(column).str.strip_chars()
    return (text.is_not_null() & text.cast(pl.Float64, strict=False).is_null()) | text.str.contains(_LEADING).fill_null(False)


def keyed(source: SourceRows, column: str, kind: IdKind | None, hash: IdHash) -> SourceRows:
    """Checks the type of an id column; replaces text by its keys."""
    dtype = _schema(source)[column]
    if kind == "text":
        if dtype.is_integer():
            raise BadData(f"{source.name}: column '{column}' is {dtype}, but these ids are text; write the column as text")
        if not is_text(dtype):
            raise BadData(f"{source.name}: column '{column}' is {dtype}; ids must be text here, as in the other data")
        return source.mapped(partial(_with_keys, column=column, hash=hash))
    if kind == "integer" and is_text(dtype):
        says = f"{source.name}: column '{column}' is {dtype}, but these ids are integers"
        raise BadData(f"{says}; to change the kind of ids, make a recommender with another name")
    return source


def copied(source: SourceRows, path: Path) -> SourceRows:
    """Copies rows with their keys to a file, so that all later passes read integers. If a row cannot be read, nothing is copied: those
    passes find the file, and report it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.frame.sink_parquet(path, compression="lz4", row_group_size=_ROW_GROUP, statistics=False)
    except PolarsError:
        path.unlink(missing_ok=True)
        return source
    return replace(source, frame=pl.scan_parquet(path))


def _with_keys(frame: pl.LazyFrame, column: str, hash: IdHash) -> pl.LazyFrame:
    text = pl.col(column).cast(pl.String)
    return frame.with_columns(keys(text, hash).alias(column), text.alias(text_of(column)))


def keys(text: pl.Expr, hash: IdHash) -> pl.Expr:
    """Returns the keys of text ids; null for null."""

    def of(texts: pl.Series) -> pl.Series:
        distinct = texts.drop_nulls().unique()
        made = pl.Series(hash.keys(distinct), dtype=pl.Int64)
        return texts.replace_strict(distinct, made, default=None, return_dtype=pl.Int64)

    return text.map_batches(of, pl.Int64, is_elementwise=True)


def without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    return frame.drop(pl.selectors.starts_with(PREFIX))


def check_table_keys(table: pl.DataFrame, key: str, name: str) -> None:
    """Raises BadData if two text ids of a table have one key."""
    if text_of(key) in table.columns:
        refuse_equal_keys(table.lazy().select(key=key, id=text_of(key)), name)


def refuse_equal_keys(pairs: pl.LazyFrame, name: str) -> pl.DataFrame:
    """Returns each key with its id; raises BadData if two ids have one key."""
    grouped = pairs.group_by("key").agg(pl.col("id").min(), pl.col("id").max().alias("other")).collect(engine="streaming")
    clashes = grouped.filter(pl.col("id") != pl.col("other"))
    if len(clashes):
        _, first, second = clashes.sort("key").row(0)
        raise BadData(f"{name}: the ids '{first}' and '{second}' have the same key; rename one of them")
    return grouped.select("key", "id").sort("key")


def write_user_ids(pairs: Sequence[pl.LazyFrame], earlier: Iterable[Path], path: Path, name: str) -> Path:
    """Writes key and id of each user; raises BadData if two ids have the same key. `earlier`: the file of the parent run, if any."""
    frames = [*pairs, *(pl.scan_parquet(file) for file in earlier)]
    refuse_equal_keys(pl.concat(frames).drop_nulls(), name).write_parquet(path)
    return path


def _schema(source: SourceRows) -> pl.Schema:
    with readable(source.name):
        return source.frame.collect_schema()
