"""Interactions from the user's file and from the platform's events, in one format.

Format: user and item (int64), time (float64, seconds since 1970), label (int8, 1 is liked), and weight (float32) if the spec weights
positives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import polars as pl

from pipelines.data.days import day_of
from pipelines.data.ids import copied, keyed, text_of
from pipelines.data.pages import check_page_type, is_page, without_views
from pipelines.data.sources import ReadableRoots, SourceRows, open_source, readable
from pipelines.data.times import is_text, seconds
from pipelines.data.validate import check_key_types, check_label_type, check_time_type
from shared.contracts.events import PAGE
from shared.contracts.quantities import AnyRow, ListedValues, NumberComparison, PositiveRule
from shared.contracts.schema import EPOCH_UNITS, Schema
from shared.contracts.spec import RecommenderSpec
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.errors import BadData

JUDGED, WEIGHT = "validation.label", "label.weight"
"""Helper columns, not part of the file or of an event."""
EVENT_COLUMNS = {
    "user": pl.Int64,
    "item": pl.Int64,
    "value": pl.Float64,
    "time": pl.Float64,
    "kind": pl.String,
    "user_id": pl.String,
    "item_id": pl.String,
}


def open_interactions(spec: RecommenderSpec, reach: ReadableRoots) -> SourceRows:
    """Opens the user's files and checks column types; pipelines/data/validation checks the values. A time or a label that the data lacks is
    added as a column."""
    schema = spec.schema_
    ids = {schema.user: reach.kinds.user, schema.item: reach.kinds.item}
    texts = [column for column, kind in ids.items() if kind == "text"]
    source = open_source(spec.data.interactions, reach, schema.columns(), spare=True, as_text=[*texts, *_texts(schema)])
    source = _with_time_and_label(source, schema)
    for column, kind in ids.items():
        source = keyed(source, column, kind, reach.ids)
    source = copied(source, reach.scratch / "keyed.parquet") if texts else source
    check_key_types(source, (schema.user, schema.item))
    check_time_type(source, schema.time_column)
    check_label_type(source, schema.label_column)
    if schema.page:
        check_page_type(source, schema.page)
    time = seconds(schema.times, source.frame.collect_schema()[schema.time_column]) if schema.time else None
    return source.mapped(lambda frame: reach.forgotten.without(frame, schema.user, time)) if reach.forgotten.users else source


def _texts(schema: Schema) -> Iterator[str]:
    """Yields the columns whose values are compared as text."""
    if schema.time and schema.time.format not in (None, *EPOCH_UNITS):
        yield schema.time.column
    if schema.label.column and isinstance(schema.label.positive, ListedValues) and schema.label.positive.is_text:
        yield schema.label.column


def _with_time_and_label(source: SourceRows, schema: Schema) -> SourceRows:
    """Adds a time and a label that the data lacks; a label that is not compared becomes 1 for positives, else 0."""
    rule, column = schema.label.positive, pl.col(schema.label_column)
    added: dict[str, pl.Expr] = {}
    if schema.time is None:
        added[schema.time_column] = pl.lit(source.changed_at().timestamp())
    if isinstance(rule, AnyRow):
        added[schema.label_column] = pl.lit(1, pl.Int8)
    elif isinstance(rule, ListedValues):
        with readable(source.name):
            dtype = source.frame.collect_schema()[schema.label_column]
        if rule.is_text != (is_text(dtype) or dtype == pl.Boolean):
            listed = "texts" if rule.is_text else "numbers"
            raise BadData(f"{source.name}: column '{schema.label_column}' is {dtype}, but schema.label.positive lists {listed}")
        values = column.cast(pl.String).str.strip_chars() if rule.is_text else column.cast(pl.Float64)
        added[schema.label_column] = values.is_in(rule.values).cast(pl.Int8)
        if rule.weights is not None:
            added[WEIGHT] = _weight_of(values, dict(zip(map(str, rule.values), rule.weights, strict=True)))
    return source.mapped(lambda frame: frame.with_columns(**added)) if added else source


def _weight_of(texts: pl.Expr, weights: Mapping[str, float]) -> pl.Expr:
    return texts.replace_strict(dict(weights), default=1.0, return_dtype=pl.Float32)


def from_file(source: SourceRows, spec: RecommenderSpec, extra: Mapping[str, str] | None = None) -> pl.LazyFrame:
    """Returns the file's interactions, without page views. `extra`: further columns by new name. Text ids of users stay, as `id.user`."""
    schema = spec.schema_
    names = source.frame.collect_schema().names()
    wanted = {text_of("user"): text_of(schema.user)} | ({"weight": WEIGHT} if spec.weighted else {})
    optional = {name: column for name, column in wanted.items() if column in names}
    return without_views(source.frame, schema).select(
        user=pl.col(schema.user).cast(pl.Int64),
        item=pl.col(schema.item).cast(pl.Int64),
        time=seconds(schema.times, source.frame.collect_schema()[schema.time_column]),
        label=holds(pl.col(schema.label_column).cast(pl.Float64), file_rule(spec.positive())),
        **{name: pl.col(column) for name, column in {**(extra or {}), **optional}.items()},
    )


def read_events(
    stretches: Sequence[Sequence[Path]], spec: RecommenderSpec, kinds: IdKinds = UNFIXED, since: datetime | None = None
) -> pl.LazyFrame:
    """Reads the platform's feedback, oldest first, with its label. Each group of files is a CSV or the parts of a day. Drops kinds that are
    never positive or unknown to the spec; events older than kinds are positive if they have no value. Text ids stay in the
    columns `id.user` and `id.item`. Drops events whose ids are of another kind: an earlier recommender of the same name received them."""
    events = _read_stretches(stretches, since).with_columns(_judged(spec).alias(JUDGED)).filter(pl.col(JUDGED).is_not_null())
    if spec.weighted:
        events = events.with_columns(weight=_weight_of(pl.col("kind"), spec.feedback.weights()))
    for entity in ("user", "item"):
        text = pl.col(f"{entity}_id")
        events = events.filter(text.is_not_null() if kinds.of(entity) == "text" else text.is_null())
    texts = {f"{entity}_id": text_of(entity) for entity in ("user", "item") if kinds.of(entity) == "text"}
    return events.drop({"user_id", "item_id"} - texts.keys()).rename(texts)


def plain_events(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select("user", "item", pl.selectors.by_name(text_of("user"), "weight", require_all=False), "time", label=JUDGED)


def views_from_events(stretches: Sequence[Sequence[Path]], since: datetime | None) -> pl.LazyFrame:
    """Returns the platform's page views: user, item (a page's key) and time."""
    return _read_stretches(stretches, since).filter((pl.col("kind") == PAGE) & is_page(pl.col("item"))).select("user", "item", "time")


def _read_stretches(stretches: Sequence[Sequence[Path]], since: datetime | None) -> pl.LazyFrame:
    events = pl.concat([_exported(stretch[0]) if stretch[0].suffix == ".csv" else day_of(stretch) for stretch in stretches])
    return events if since is None else events.filter(pl.col("time") >= since.timestamp())


def _exported(path: Path) -> pl.LazyFrame:
    with readable("events.csv"):
        with path.open(encoding="utf-8") as lines:
            names = lines.readline().strip().split(",")
        events = pl.read_csv(path, schema={name: kind for name, kind in EVENT_COLUMNS.items() if name in names})
    for column in ("user", "item", "time"):
        if events[column].null_count():
            raise BadData(f"events.csv: column '{column}' has {events[column].null_count():,} nulls")
    missing = [name for name in EVENT_COLUMNS if name not in names]
    events = events.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
    return events.lazy().select(*EVENT_COLUMNS)


def _judged(spec: RecommenderSpec) -> pl.Expr:
    """Returns the label by the event's kind, as `Feedback.positive` defines."""
    liked, by_label = pl.lit(1, dtype=pl.Int8), holds(pl.col("value"), spec.positive())
    label = pl.when(pl.col("kind").is_null()).then(pl.when(pl.col("value").is_null()).then(liked).otherwise(by_label))
    by_kind: pl.Expr = label.otherwise(None)
    for name, kind in spec.feedback.all_kinds().items():
        if kind.positive != "never":
            kind_label = by_label if kind.positive == "by_label" else liked
            by_kind = pl.when(pl.col("kind") == name).then(kind_label).otherwise(by_kind)
    return by_kind


def latest(frame: pl.LazyFrame, stretch: float, data: pl.LazyFrame) -> pl.LazyFrame:
    """Keeps the frame's rows within `stretch` seconds before the data's newest row."""
    newest = data.select(pl.col("time").max()).collect(engine="streaming").item()
    return frame.filter(pl.col("time") >= newest - stretch)


def file_rule(rule: PositiveRule) -> PositiveRule:
    """Returns the rule for the label column of an opened file: listed values are 1 or 0 there."""
    return rule if isinstance(rule, NumberComparison) else NumberComparison("==", 1.0)


def holds(value: pl.Expr, rule: PositiveRule) -> pl.Expr:
    """Returns the label rule for numbers as a polars expression, as `holds` of the rule defines."""
    if isinstance(rule, AnyRow):
        return pl.lit(1, pl.Int8)
    if isinstance(rule, ListedValues):
        numbers = [] if rule.is_text else list(rule.values)
        return value.is_in(pl.Series(numbers, dtype=pl.Float64).implode()).cast(pl.Int8)
    bound = pl.lit(rule.bound)
    compared = {">=": value >= bound, ">": value > bound, "<=": value <= bound, "<": value < bound, "==": value == bound}
    return compared[rule.compare].cast(pl.Int8)
