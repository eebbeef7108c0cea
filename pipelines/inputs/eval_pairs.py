"""User-item pairs at a time, as raw columns and as features, for evaluation and parity.

A user's time is that of the first holdout row: when a model trained until then would be asked. Users without holdout rows have a blank
time. Values of users are those at that time, or the current ones, with which serving starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import BLANK, Raw
from pipelines.features.graph import Graph
from pipelines.features.prepared import EXTRA, FEATURE
from pipelines.features.raw import raw_column
from pipelines.features.stored import STORED, with_values
from pipelines.inputs.tables import Array, Codes, FeatureTable, Users, array, crossed, dtype_of, placed, read_table, read_users
from pipelines.inputs.version_values import PublishedValues
from shared.domain.errors import Invalid
from shared.serving.signature import Input, Signature

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class UserContexts:
    """Context of users, sorted by user; the last row is blank."""

    users: Ints
    features: Codes
    raw: pl.DataFrame
    """Raw columns of the interactions, prepared."""
    times: Ints
    """Whole seconds, even if the graph takes no time."""
    extra: pl.DataFrame
    """Further columns as in the data, without the blank row."""
    user_rows: Array | None = None
    """Row of the users table at that time, without the blank row."""

    def places(self, users: Ints) -> Ints:
        return placed(self.users, users)


@dataclass(frozen=True)
class EvalPairs:
    graph: Graph
    items: FeatureTable
    users: Users
    moments: UserContexts

    def features(self, users: Ints, rows: Ints) -> Codes:
        """Returns the features of pairs: `users` are keys, `rows` are rows of the catalogue."""
        places = self.moments.places(users)
        features = self.items.take(rows) | {name: column[places] for name, column in self.moments.features.items()} | self.users.of(users)
        return crossed(self.graph, features)


def read_meetings(fetch: Callable[[str], Path], has_users: bool, graph: Graph, now: bool = False) -> EvalPairs:
    """Reads the pairs from etl's files by `fetch`. `now`: uses current values of users."""
    items = read_table(fetch("items.features.parquet"), graph, "item")
    moments = _moments(fetch("holdout.parquet"), graph, has_users)
    then = None if now or moments.user_rows is None else (moments.users, moments.user_rows)
    return EvalPairs(graph, items, read_users(fetch, has_users, graph, then), moments)


def _moments(path: Path, graph: Graph, has_users: bool) -> UserContexts:
    context = graph.side("context")
    raws = [raw for raw in graph.raws("interactions") if raw.side == "context"]
    extra = [name for name in pl.read_parquet_schema(path) if name.startswith(EXTRA)]
    columns = [f"{FEATURE}{feature.name}" for feature in context] + extra
    first = (
        pl.scan_parquet(path)
        .sort("time", "item")
        .unique("user", keep="first", maintain_order=True)
        .select("user", "time", *(["user_row"] if has_users else []), *columns)
        .sort("user")
        .collect(engine="streaming")
    )
    prepared = first.select(_prepared(raw, graph) for raw in raws)
    blank = pl.DataFrame({raw.name: pl.Series([None], dtype=dtype_of(raw)) for raw in raws})
    nobody = pl.DataFrame(
        {raw.name: pl.Series([None], dtype=dtype_of(raw)) for raw in (*raws, *graph.raws("users"))}
        | {graph.user: pl.Series([None], dtype=pl.Int64)}  # ensures a row
    )
    made = graph.transform(nobody.lazy(), "context").collect() if context else pl.DataFrame()
    features = {}
    for feature in context:
        features[feature.name] = np.concatenate(
            [array(first[f"{FEATURE}{feature.name}"], feature.kind), array(made[feature.name], feature.kind)]
        )
    raw = pl.concat([prepared, blank], how="vertical") if raws else pl.DataFrame()
    times = np.append(np.floor(first["time"].to_numpy()).astype(np.int64), np.int64(BLANK["int64"]))
    others = first.select(pl.col(name).alias(name.removeprefix(EXTRA)) for name in extra)
    return UserContexts(first["user"].to_numpy(), features, raw, times, others, first["user_row"].to_numpy() if has_users else None)


def _carried(column: Raw) -> str:
    return f"{EXTRA}{column.source or column.name}"


def _prepared(column: Raw, graph: Graph) -> pl.Expr:
    if column.name == graph.tables.time:
        return pl.col("time").floor().cast(pl.Int64).alias(column.name)
    schema = graph.tables.interactions
    name = column.source or column.name
    return Raw(**{**vars(column), "source": _carried(column)}).prepared(schema[name])


@dataclass(frozen=True)
class RawColumns:
    """Raw inputs of a served unit: columns of the catalogue, of users (blank if unknown), and of the interaction."""

    items: pl.DataFrame
    users: pl.DataFrame | None
    moments: UserContexts

    def stored(self, graph: Graph, limit: int) -> RawColumns:
        """Adds the served unit's inputs that replace large tables."""
        stored = graph.stored(limit)
        items, users = (tuple(column for column in stored if column.side == side) for side in ("item", "user"))
        people = self.users
        if users and people is None:
            people = pl.DataFrame({graph.user: graph.key(graph.user).state.values.sort()})
        return RawColumns(
            with_values(self.items, items), with_values(people, users) if people is not None and users else people, self.moments
        )

    def of(self, served: Signature, own: PublishedValues | None = None) -> Callable[[Ints, Ints], dict[str, Array]]:
        """Returns the unit's inputs by pair. Values missing from the tables come from `own`; raises Invalid if those lack them too or types
        differ."""
        raw = self if own is None else self._without_stored()
        items = {wanted.name: raw._of_items(wanted, served, own) for wanted in served.side("item")}
        people = raw._of_users(served, own)
        moments = {wanted.name: self._of_moments(wanted, served) for wanted in served.side("context") if wanted.name != served.session}
        no_items = {
            wanted.name: np.full((1, wanted.width or 1), BLANK["int64"]) for wanted in served.inputs if wanted.name == served.session
        }

        def ask(users: Ints, rows: Ints) -> dict[str, Array]:
            inputs = {name: column[rows] for name, column in items.items()} | {served.user: users}
            for keys, columns in people:
                places = placed(keys, users)
                inputs |= {name: column[places] for name, column in columns.items()}
            if moments:
                places = self.moments.places(users)
                inputs |= {name: column[places] for name, column in moments.items()}
            return inputs | {name: np.broadcast_to(blank, (len(rows), blank.shape[1])) for name, blank in no_items.items()}

        return ask

    def _without_stored(self) -> RawColumns:
        """Drops stored values, which belong to another version."""
        others = pl.exclude("^.*" + re.escape(STORED) + "$")
        return replace(self, items=self.items.select(others), users=None if self.users is None else self.users.select(others))

    def _of_items(self, wanted: Input, served: Signature, own: PublishedValues | None) -> Array:
        try:
            return raw_column(self.items, wanted, "the items table")
        except Invalid:
            if own is None or served.item not in self.items.columns:
                raise
        return own.items(wanted, self.items[served.item].to_numpy())

    def _of_users(self, served: Signature, own: PublishedValues | None) -> list[tuple[Ints, dict[str, Array]]]:
        """Returns columns by key; the last row of each is blank."""
        people = self.users if self.users is not None else pl.DataFrame({served.user: pl.Series([], dtype=pl.Int64)})
        table = pl.concat([people, people.clear(1)])
        columns: dict[str, Array] = {}
        lacking: dict[str | None, list[Input]] = {}
        for wanted in served.side("user"):
            if wanted.name == served.user:
                continue
            try:
                columns[wanted.name] = raw_column(table, wanted, "the users table")
            except Invalid:
                if own is None:
                    raise
                lacking.setdefault(wanted.view, []).append(wanted)
        tables = [(people[served.user].to_numpy(), columns)] if columns else []
        return tables + [own.users(some, self.moments.users) for some in lacking.values() if own is not None]

    def _of_moments(self, wanted: Input, served: Signature) -> Array:
        if wanted.name not in self.moments.raw.columns:
            if wanted.name == served.time:
                return self.moments.times
            if wanted.name in self.moments.extra.columns:
                return _unread(self.moments.extra, wanted)
        return raw_column(self.moments.raw, wanted, "the interactions")

    def frame(self, graph: Graph, users: Ints, rows: Ints) -> pl.DataFrame:
        """Returns the same as prepared columns, for the graph."""
        parts = [pl.DataFrame({graph.user: users}), self.items.select(graph.item, *(raw.name for raw in graph.raws("items")))[rows]]
        if (columns := [raw.name for raw in graph.raws("users")]) and self.users is not None:
            people = pl.concat([self.users, self.users.clear(1)])
            parts.append(people.select(columns)[placed(self.users[graph.user].to_numpy(), users)])
        if self.moments.raw.width:
            parts.append(self.moments.raw[self.moments.places(users)])
        return pl.DataFrame([column for part in parts for column in part])


def _unread(table: pl.DataFrame, wanted: Input) -> Array:
    """Prepares a column that this run's family doesn't read for another version's unit; the last row is blank."""
    dtype = table[wanted.name].dtype
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    text = inner in (pl.String, pl.Categorical, pl.Enum)
    if isinstance(dtype, pl.List) != (wanted.width is not None) or text != (wanted.dtype == "string"):
        raise Invalid(f"the interactions' column '{wanted.name}' is {dtype}: only the serving version can convert it to {wanted.dtype}")
    time = isinstance(inner, pl.Datetime | pl.Date)
    column = Raw(wanted.name, wanted.dtype, "context", many=wanted.width is not None, table="interactions", time=time)
    prepared = table.select(column.prepared(dtype))
    return raw_column(pl.concat([prepared, prepared.clear(1)]), wanted, "the interactions")


def read_raw(fetch: Callable[[str], Path], has_users: bool, meetings: EvalPairs) -> RawColumns:
    """Reads raw columns, with users as in `meetings`."""
    users = pl.read_parquet(fetch("users.parquet")) if has_users else None
    if users is not None and (rows := meetings.users.rows) is not None:
        users = users[rows]
    return RawColumns(pl.read_parquet(fetch("items.parquet")), users, meetings.moments)
