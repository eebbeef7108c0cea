"""Prepared data: etl's normalised interactions and tables for the features, and the files that etl publishes.

An interaction is stored as few numbers: the rows of its user and item, its fold, and the features of its own time. The tables of users and
items have the others by row, so that a negative drawn in training has its item's features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from pipelines.data.ids import text_of
from pipelines.features.asof import SINCE, ValidityPeriods, microseconds
from pipelines.features.columns import Side, Table
from pipelines.features.engines.choice import Engine, PolarsEngine
from pipelines.features.engines.history import ROW, RowHistory
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import USER_ROW, Graph, Tables, compile_graph, joined
from pipelines.features.operators.base import Mode, plain
from pipelines.features.operators.target import fold_of
from pipelines.features.raw import check_lists
from pipelines.features.reading import Reads
from shared.contracts.features import mentioned
from shared.contracts.spec import RecommenderSpec
from shared.domain.errors import Invalid

EXTRA = "x."
"""Name prefix of further columns of the interactions."""
PAGES = "pages.parquet"
"""Page views, if used."""
FEATURE, FOLD = "f.", "fold."
"""Name prefixes of an interaction's own features, and of its fold by the number of folds."""
MODES: dict[bool, Mode] = {True: "rows", False: "serve"}
"""Modes by whether rows are trained on."""
ROW_GROUP, GROUP_BYTES = 65_536, 8 << 20
"""Maximum rows, and bytes of own features, of a row group: a loader's pool has many groups even with wide rows."""
_ASIDE = {"user": "~user", "item": "~item", "time": "~time"}
"""Temporary names of etl's own columns: the data may use the same names."""


def extra_columns(spec: RecommenderSpec, interactions: pl.Schema) -> dict[str, pl.DataType]:
    """Returns the columns of the interactions, outside the spec's schema, that features use. `label` always means the schema's label."""
    schema = spec.schema_
    names = {name for entry in spec.operators() for name in mentioned(entry)} - {schema.user, schema.item, schema.time_column, "label"}
    return {name: dtype for name, dtype in interactions.items() if name in names}


def graph_of(
    spec: RecommenderSpec,
    extra: Mapping[str, pl.DataType],
    items: pl.Schema,
    users: pl.Schema | None,
    names: Mapping[Table, str],
    reads: Reads = "deep",
) -> Graph:
    """Returns the unfitted graph that the family reads; the tables' keys have the schema's names."""
    schema = spec.schema_
    rows = pl.Schema({schema.user: pl.Int64(), schema.item: pl.Int64(), schema.time_column: pl.Int64()} | dict(extra))
    item_columns = pl.Schema({name: dtype for name, dtype in items.items() if name not in (schema.item, text_of(schema.item))})
    people = pl.Schema({name: dtype for name, dtype in (users or {}).items() if name not in (schema.user, text_of(schema.user))})
    graph = compile_graph(spec.operators(), Tables(schema.user, schema.item, schema.time_column, rows, item_columns, people, names))
    for operator in graph.operators:
        for out in operator.outputs:
            if out.side == "pair" and operator.kind != "cross":
                raise Invalid(
                    f"features: '{plain(out)}' depends on the item and on the user or the time: only a 'cross' can, because it is computed"
                    " for each pair"
                )
    check_lists(graph, spec.serve.lists)
    return graph.read_as(reads)


@dataclass(frozen=True)
class Prepared:
    """Prepared tables, ordered by key. `users` has all users of the data and of the users table; with `SINCE`, a row per stretch of equal
    values."""

    graph: Graph
    items: pl.DataFrame
    users: pl.DataFrame | None
    """None if users have only a key."""
    engine: Engine = field(default_factory=PolarsEngine)
    pages: pl.LazyFrame | None = None
    """Page views as user, item and time, if used."""

    def rows(self, frame: pl.LazyFrame, start: int = 0) -> pl.LazyFrame:
        """Returns numbered interactions, prepared and joined with the tables."""
        graph = self.graph
        names = {name.removeprefix(EXTRA): name for name in frame.collect_schema().names() if name.startswith(EXTRA)}
        there = (
            frame.rename(_ASIDE)
            .with_row_index(ROW, start)
            .with_columns(
                pl.col(_ASIDE["user"]).alias(graph.user),
                pl.col(_ASIDE["item"]).alias(graph.item),
                pl.col(_ASIDE["time"]).floor().cast(pl.Int64).alias(graph.tables.time),
            )
        )
        renamed = there.with_columns(pl.col(old).alias(new) for new, old in names.items())
        tables: dict[Table, pl.LazyFrame] = {
            "interactions": renamed.with_columns(graph.prepared("interactions")),
            "items": self.items.lazy(),
        }
        if self.users is not None:
            tables["users"] = self.users.lazy()
        if self.stretches is not None:
            row = self.stretches.row(graph.user, microseconds(pl.col(_ASIDE["time"])))
            tables["interactions"] = tables["interactions"].with_columns(row.alias(USER_ROW))
            tables["users"] = tables["users"].with_columns(pl.int_range(pl.len(), dtype=pl.Int32).alias(USER_ROW))
        return joined(tables, graph)

    @cached_property
    def stretches(self) -> ValidityPeriods | None:
        """None if each user has a single row."""
        return (
            ValidityPeriods.of(self.users[self.graph.user], self.users[SINCE]) if self.users is not None and SINCE in self.users else None
        )

    def fit(self, train: pl.LazyFrame, previous: Graph | None = None, history: RowHistory | None = None) -> Prepared:
        users = None if self.users is None else self.users.lazy()
        data = PreparedTables(self.rows(train), self.items.lazy(), users, self.graph.row, history, self._counted(train))
        return replace(self, graph=self.graph.fit(data, previous, self.engine.compute))

    def history(self, train: pl.LazyFrame, holdout: pl.LazyFrame, folder: Path) -> RowHistory | None:
        """Returns the history of each row, if an operator needs it; the holdout's numbers follow the training rows'."""
        if not self.graph.ordered:
            return None
        count, more = pl.collect_all([train.select(pl.len()), holdout.select(pl.len())], engine="streaming")
        rows = pl.concat([self.rows(train, 0), self.rows(holdout, count.item())])
        pages = None if self.pages is None else self._views(self.pages)
        return RowHistory(rows, self.graph.ordered, self.graph.row, folder, count.item() + more.item(), pages)

    def _counted(self, train: pl.LazyFrame) -> pl.LazyFrame | None:
        """Returns the page views up to each user's last training row."""
        if self.pages is None:
            return None
        last = train.group_by("user").agg(pl.col("time").max().alias(_ASIDE["time"]))
        return self._views(self.pages.join(last, on="user").filter(pl.col("time").floor() <= pl.col(_ASIDE["time"]).floor()))

    def _views(self, pages: pl.LazyFrame) -> pl.LazyFrame:
        """Renames page views for operators."""
        user, item, time = self.graph.row
        return pages.select(pl.col("user").alias(user), pl.col("item").alias(item), pl.col("time").floor().cast(pl.Int64).alias(time))

    def write_rows(
        self, train: pl.LazyFrame, holdout: pl.LazyFrame, history: RowHistory | None, paths: tuple[Path, Path]
    ) -> tuple[int, int]:
        """Writes the parts that etl publishes; returns their row counts."""
        count = self.write_part(train, paths[0], True, history)
        return count, self.write_part(holdout, paths[1], False, history, count)

    def write_part(self, part: pl.LazyFrame, path: Path, train: bool, history: RowHistory | None, start: int = 0) -> int:
        """Writes encoded rows, numbered from `start`; returns their count."""
        a_row = sum(4 * (feature.width or 1) for feature in self.graph.side("context"))
        group = max(1, min(ROW_GROUP, GROUP_BYTES // max(1, a_row)))
        frame = self._featured(self.rows(part, start), train, history)
        self.engine.queries.write("rows", frame, path, row_group_size=group, compression_level=1)
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())

    @property
    def tables(self) -> Mapping[Side, tuple[str, pl.DataFrame]]:
        """Tables with their names, by side."""
        tables: dict[Side, tuple[str, pl.DataFrame]] = {"item": ("items", self.items)}
        return tables if self.users is None else {**tables, "user": ("users", self.users)}

    def write_tables(self, place: Callable[[str], Path]) -> dict[str, Path]:
        """Writes the features of items and users by row. `place` returns the path for a name."""
        files = {f"{name}.features.parquet": place(f"{name}.features.parquet") for name, _ in self.tables.values()}
        for side, (name, table) in self.tables.items():
            self.graph.table(table.lazy(), side).collect().write_parquet(files[f"{name}.features.parquet"])
        return files

    def _featured(self, rows: pl.LazyFrame, train: bool, history: RowHistory | None) -> pl.LazyFrame:
        graph = self.graph
        extra = [name for name in rows.collect_schema().names() if name.startswith(EXTRA)]
        made = graph.key(graph.user).apply(rows, "serve")
        codes = made.rename({graph.key(graph.user).outputs[0].name: "user_code"}).with_columns(
            self._row(self.items, graph.item, "item_row")
        )
        folds = sorted({operator.folds for operator in graph.folds if operator.outputs[0].side in ("user", "item")})
        columns = [fold_of(graph.row, count).alias(f"{FOLD}{count}") for count in folds]
        if self.users is not None:
            by_key = self.stretches is None
            columns.append(self._row(self.users, graph.user, "user_row") if by_key else pl.col(USER_ROW).alias("user_row"))
        context = graph.side("context")
        carried = [pl.col(aside).alias(name) for name, aside in _ASIDE.items()]
        weight = ("weight",) if "weight" in rows.collect_schema() else ()
        keep = [*carried, *(pl.col(name) for name in ("label", *weight, *extra, "user_code", "item_row"))]
        keep += [pl.col(column.meta.output_name()) for column in columns]
        rows, mode = codes.with_columns(columns), MODES[train]
        made = self.engine.transform(graph, rows, "context", mode=mode, history=history, keep=keep)
        return made.rename({feature.name: f"{FEATURE}{feature.name}" for feature in context})

    def placed(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Adds this run's table rows to rows of an earlier run; drops rows without a user or item here."""
        graph, names = self.graph, rows.collect_schema().names()
        there = rows.filter(pl.col("item").is_in(self.items[graph.item].implode()))
        if self.users is not None:
            there = there.filter(pl.col("user").is_in(self.users[graph.user].unique().implode()))
        keyed = (
            there.select(pl.exclude("user_code", "item_row", "user_row"))
            .rename(_ASIDE)
            .with_columns(pl.col(_ASIDE["user"]).alias(graph.user), pl.col(_ASIDE["item"]).alias(graph.item))
        )
        made = graph.key(graph.user).apply(keyed, "serve").rename({graph.key(graph.user).outputs[0].name: "user_code"})
        rows_of = [self._row(self.items, graph.item, "item_row")]
        if self.stretches is not None:
            rows_of.append(self.stretches.row(graph.user, microseconds(pl.col(_ASIDE["time"]))).alias("user_row"))
        elif self.users is not None:
            rows_of.append(self._row(self.users, graph.user, "user_row"))
        back = {aside: name for name, aside in _ASIDE.items()}
        return made.with_columns(rows_of).drop(graph.user, graph.item, strict=False).rename(back).select(names)

    @staticmethod
    def _row(table: pl.DataFrame, key: str, name: str) -> pl.Expr:
        return (
            pl.col(key).replace_strict(table[key], pl.int_range(len(table), dtype=pl.Int32, eager=True), return_dtype=pl.Int32).alias(name)
        )


def prepare(
    graph: Graph,
    items: pl.DataFrame,
    users: pl.DataFrame | None,
    rows: pl.LazyFrame,
    engine: Engine | None = None,
    pages: pl.LazyFrame | None = None,
) -> Prepared:
    """Prepares the tables. `rows` determines the users of the data; the default engine is polars."""
    engine, pages = engine or PolarsEngine(), pages if graph.paged else None
    catalogue = items.with_columns(graph.prepared("items"))
    key = graph.key(graph.user).outputs[0]
    if users is None and all(out == key for operator in graph.operators for out in operator.outputs if out.side == "user"):
        return Prepared(graph, catalogue, None, engine, pages)
    present = rows.select(pl.col("user").alias(graph.user)).unique().collect(engine="streaming")
    people = (
        present
        if users is None
        else users.select(graph.user, *graph.prepared("users")).join(present, on=graph.user, how="full", coalesce=True)
    )
    return Prepared(graph, catalogue, people.sort(graph.user), engine, pages)
