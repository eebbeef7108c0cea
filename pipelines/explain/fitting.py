"""Fits a spec's feature graph as a run does: on the training data, or on schemas alone.

Large data is sampled by users, so that each sampled user keeps all rows. Only counts are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.data.catalogue import read_items, read_users
from pipelines.data.dedup import thin
from pipelines.data.ids import with_kinds, without_texts
from pipelines.data.interactions import from_file, latest
from pipelines.data.pages import of_users, views
from pipelines.data.sources import ReadableRoots, open_source, readable
from pipelines.data.split import split
from pipelines.data.validate import check_interactions
from pipelines.data.validation.command import judge_rows
from pipelines.data.validation.judging import Judged, refusal
from pipelines.data.validation.tables import JudgedTables
from pipelines.data.vectors import open_vectors, with_vectors
from pipelines.encoding.spec_encoder import TRIED, try_encoder
from pipelines.export.attributes import attribute_columns
from pipelines.features.columns import NULL, Side, Table
from pipelines.features.graph import Graph
from pipelines.features.hashing import hashed
from pipelines.features.prepared import EXTRA, Prepared, extra_columns, graph_of, prepare
from pipelines.features.reading import Reads
from shared.contracts.attribute_names import absent_values, unknown_attributes, wrong_kinds
from shared.contracts.data import Table as Keyed
from shared.contracts.features import Vector, VectorOf
from shared.contracts.spec import RecommenderSpec

_NORMAL = pl.Schema({"user": pl.Int64(), "item": pl.Int64(), "time": pl.Float64(), "label": pl.Int8()})
_KEY, _MET = "~key", "~met"


@dataclass(frozen=True)
class ExplainedFit:
    graph: Graph
    rows: int
    """Training rows of the fit; 0 without data."""
    positives: int
    """Positives among the rows."""
    items: int
    users: int
    unknown: tuple[tuple[str, str], ...]
    """Field and message of each attribute that filters or rules name and the items table lacks."""
    mistyped: tuple[tuple[str, str], ...]
    """Field and message of each filter that compares different types."""
    absent: tuple[tuple[str, str], ...]
    """Field and message of each text that a filter or rule looks for and no item has."""
    every: int
    """The fit uses one user in this many."""
    values: Mapping[str, float]
    """By feature of lists: the average number of values in a row."""

    @property
    def knows_data(self) -> bool:
        return self.rows > 0


def fit_on_data(spec: RecommenderSpec, reach: ReadableRoots, most: int, reads: Reads = "deep") -> ExplainedFit:
    """Validates the rows, and fits on about `most` of them. Data above the limits of validation is used, if it has good rows."""
    reach = with_kinds(spec, reach)
    tables, judged = judge_rows(spec, reach, None, reach.scratch / "report")
    refused = refusal(judged.report)
    if refused is not None and (judged.profile is None or not tables.items.has_rows):
        raise refused
    return fit_on_judged(spec, reach, tables, judged, most, reads)


def fit_on_judged(
    spec: RecommenderSpec, reach: ReadableRoots, tables: JudgedTables, judged: Judged, most: int, reads: Reads = "deep"
) -> ExplainedFit:
    """Fits on about `most` of the good rows."""
    table, people = tables.items.source, tables.users.source if tables.users else None
    items = _with_vectors(read_items(table, spec), spec, spec.schema_.item, table.name, reach)
    users = _with_vectors(read_users(people, spec), spec, spec.schema_.user, people.name, reach) if people else None
    source = judged.source
    extra = extra_columns(spec, source.frame.collect_schema())
    frame, pages = without_texts(from_file(source, spec, {f"{EXTRA}{name}": name for name in extra})), views(source, spec)
    if spec.data.interactions.since:
        stretch = spec.data.interactions.since.total_seconds()
        pages = latest(pages, stretch, frame) if pages is not None else None
        frame = latest(frame, stretch, frame)
    every = max(1, -(-_count(frame) // most))
    if every > 1:
        frame = frame.filter(hashed([pl.col("user").fill_null(0)], every) == 0)
    with readable(source.name):
        frame = _laid_down(frame, reach.scratch / "interactions.parquet")
    frame = _laid_down(thin(frame, spec.data.interactions).frame, reach.scratch / "used.parquet")
    schema, need_both = spec.schema_, spec.model.params.wants_both_labels(full=True)
    check_interactions(frame, source.name, schema.user, schema.item, schema.label_column, need_both)
    parts = split(frame, spec.split, source.name)
    names: dict[Table, str] = {"interactions": source.name, "items": f"the items table {table.name}"}
    if people is not None:
        names["users"] = f"the users table {people.name}"
    graph = graph_of(spec, extra, items.schema, users.schema if users is not None else None, names, reads)
    if pages is not None and graph.paged:
        pages = _laid_down(of_users(pages, frame), reach.scratch / "pages.parquet")
    ready = prepare(graph, items, users, frame, None, pages)
    ready = ready.fit(parts.train, None, ready.history(parts.train, parts.holdout, reach.scratch / "history"))
    user_count = len(ready.users) if ready.users is not None else _count(frame.select("user").unique())
    liked = _count(parts.train.filter(pl.col("label") > 0))
    unknown, mistyped, absent = _unknown(items, spec), _mistyped(items, spec), _absent(items, spec)
    values = _values(ready, parts.train)
    return ExplainedFit(ready.graph, _count(parts.train), liked, len(items), user_count, unknown, mistyped, absent, every, values)


def fit_on_nothing(spec: RecommenderSpec, reach: ReadableRoots, reads: Reads = "deep") -> ExplainedFit:
    """Fits on the tables' schemas alone."""
    schema = spec.schema_
    rows = open_source(spec.data.interactions, reach, schema.columns()).frame.collect_schema()
    items = _empty(spec.data.items, schema.item, spec, reach) if spec.data.items else pl.DataFrame(schema={schema.item: pl.Int64()})
    users = _empty(spec.data.users, schema.user, spec, reach) if spec.data.users else None
    extra = extra_columns(spec, rows)
    graph = graph_of(spec, extra, items.schema, users.schema if users is not None else None, {}, reads)
    frame = pl.LazyFrame(schema=_NORMAL | {f"{EXTRA}{name}": dtype for name, dtype in extra.items()})
    ready = prepare(graph, items, users, frame)
    ready = ready.fit(frame, None, ready.history(frame, frame, reach.scratch / "history"))
    return ExplainedFit(ready.graph, 0, 0, 0, 0, _unknown(items, spec), _mistyped(items, spec), (), 1, {})


def _unknown(items: pl.DataFrame, spec: RecommenderSpec) -> tuple[tuple[str, str], ...]:
    key = spec.schema_.item
    table = items.drop([vector.output for vector in _vectors(spec, key)])
    return unknown_attributes(spec.serve, attribute_columns(table, key, {}).kinds)


def _mistyped(items: pl.DataFrame, spec: RecommenderSpec) -> tuple[tuple[str, str], ...]:
    return wrong_kinds(spec.serve, attribute_columns(items, spec.schema_.item, {}).kinds)


def _absent(items: pl.DataFrame, spec: RecommenderSpec) -> tuple[tuple[str, str], ...]:
    kinds = attribute_columns(items, spec.schema_.item, {}).kinds

    def values_of(name: str) -> frozenset[str] | None:
        if kinds.get(name) not in ("text", "texts"):
            return None
        column = items[name].explode(empty_as_null=False) if isinstance(items[name].dtype, pl.List) else items[name]
        return frozenset(column.drop_nulls().cast(pl.String).unique())

    return absent_values(spec.serve, values_of)


def _empty(table: Keyed, key: str, spec: RecommenderSpec, reach: ReadableRoots) -> pl.DataFrame:
    source = open_source(table, reach, (table.key,))
    columns = {name: dtype for name, dtype in source.frame.collect_schema().items() if name not in (table.key, key)}
    for of in _vectors(spec, key):
        if of.encode is not None:
            try_encoder(source.frame.head(TRIED).collect(), of, of.encode, source.name, reach)
    vectors = {vector.output: pl.List(pl.Float32) for vector in _vectors(spec, key)}
    return pl.DataFrame(schema={key: pl.Int64(), **columns, **vectors})


def _with_vectors(table: pl.DataFrame, spec: RecommenderSpec, key: str, name: str, reach: ReadableRoots) -> pl.DataFrame:
    """Adds vector columns; vectors that etl would encode stay null, because no count depends on them."""
    for of in _vectors(spec, key):
        if of.encode is None:
            kind = reach.kinds.item if key == spec.schema_.item else reach.kinds.user
            table = with_vectors(table, open_vectors(of, reach, kind), of)
        else:
            try_encoder(table, of, of.encode, name, reach)
            table = table.with_columns(pl.lit(None, pl.List(pl.Float32)).alias(of.output))
    return table


def _vectors(spec: RecommenderSpec, key: str) -> list[VectorOf]:
    return [operator.vector for operator in spec.operators() if isinstance(operator, Vector) and operator.vector.of == key]


def _values(ready: Prepared, rows: pl.LazyFrame) -> dict[str, float]:
    """Average number of values per interaction, for list features of items and users."""
    averages: dict[str, float] = {}
    tables: tuple[tuple[Side, str, pl.DataFrame | None], ...] = (
        ("item", ready.graph.item, ready.items),
        ("user", ready.graph.user, ready.users),
    )
    for side, key, table in tables:
        wanted = [feature.name for feature in ready.graph.side(side) if feature.kind == "code" and feature.width is not None]
        if table is None or not wanted:
            continue
        met = rows.group_by(pl.col(side).alias(_KEY)).agg(pl.len().alias(_MET)).collect(engine="streaming")
        made = ready.graph.transform(table.lazy(), side, keep=[pl.col(key).alias(_KEY)]).collect()
        times = made.select(_KEY).join(met, on=_KEY, how="left", maintain_order="left")[_MET].fill_null(0).to_numpy()
        for name in wanted:
            counts = (made[name].to_numpy() != NULL).sum(axis=1)
            averages[name] = float((counts * times).sum() / max(1, times.sum()))
    return averages


def _laid_down(frame: pl.LazyFrame, path: Path) -> pl.LazyFrame:
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.sink_parquet(path)
    return pl.scan_parquet(path)


def _count(frame: pl.LazyFrame) -> int:
    return int(frame.select(pl.len()).collect(engine="streaming").item())
