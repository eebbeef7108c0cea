"""Users meeting items at a moment, as raw columns and as features: what evaluation scores and what parity compares.

A user's moment is that of the user's first row in the holdout: when a model that was trained up to there would have been asked. Who has
none meets items at a blank moment. What is known of users is what counted at their moment, or what counts now, that serving begins with.
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
from pipelines.inputs.published import Published
from pipelines.inputs.tables import Array, Catalogue, Codes, Users, array, crossed, dtype_of, placed, read_table, read_users
from shared.domain.errors import Invalid
from shared.serving.signature import Input, Signature

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """By user, sorted; the last row is the blank one."""

    users: Ints
    features: Codes
    raw: pl.DataFrame
    """The raw columns of the interactions, prepared."""
    times: Ints
    """Whole seconds, whatever the graph takes."""
    extra: pl.DataFrame
    """Further columns as the data has them, whatever the graph takes, without the blank row."""
    user_rows: Array | None = None
    """Of the users' table as of that moment, without the blank one."""

    def places(self, users: Ints) -> Ints:
        return placed(self.users, users)


@dataclass(frozen=True)
class Meetings:
    graph: Graph
    items: Catalogue
    users: Users
    moments: Moments

    def features(self, users: Ints, rows: Ints) -> Codes:
        """Of pairs: `users` are keys, `rows` are rows of the catalogue."""
        places = self.moments.places(users)
        found = self.items.take(rows) | {name: column[places] for name, column in self.moments.features.items()} | self.users.of(users)
        return crossed(self.graph, found)


def read_meetings(fetch: Callable[[str], Path], has_users: bool, graph: Graph, now: bool = False) -> Meetings:
    """`fetch` gives the files of etl. `now`: with what is known of users now, whatever their moment."""
    items = read_table(fetch("items.features.parquet"), graph, "item")
    moments = _moments(fetch("holdout.parquet"), graph, has_users)
    then = None if now or moments.user_rows is None else (moments.users, moments.user_rows)
    return Meetings(graph, items, read_users(fetch, has_users, graph, then), moments)


def _moments(path: Path, graph: Graph, has_users: bool) -> Moments:
    context = graph.side("context")
    raws = [one for one in graph.raws("interactions") if one.side == "context"]
    extra = [name for name in pl.read_parquet_schema(path) if name.startswith(EXTRA)]
    columns = [f"{FEATURE}{one.name}" for one in context] + extra
    first = (
        pl.scan_parquet(path)
        .sort("time", "item")
        .unique("user", keep="first", maintain_order=True)
        .select("user", "time", *(["user_row"] if has_users else []), *columns)
        .sort("user")
        .collect(engine="streaming")
    )
    known = first.select(_prepared(one, graph) for one in raws)
    blank = pl.DataFrame({one.name: pl.Series([None], dtype=dtype_of(one)) for one in raws})
    nobody = pl.DataFrame(
        {one.name: pl.Series([None], dtype=dtype_of(one)) for one in (*raws, *graph.raws("users"))}
        | {graph.user: pl.Series([None], dtype=pl.Int64)}  # a row, whatever else is taken
    )
    made = graph.transform(nobody.lazy(), "context").collect() if context else pl.DataFrame()
    features = {}
    for one in context:
        features[one.name] = np.concatenate([array(first[f"{FEATURE}{one.name}"], one.kind), array(made[one.name], one.kind)])
    whole = pl.concat([known, blank], how="vertical") if raws else pl.DataFrame()
    times = np.append(np.floor(first["time"].to_numpy()).astype(np.int64), np.int64(BLANK["int64"]))
    others = first.select(pl.col(name).alias(name.removeprefix(EXTRA)) for name in extra)
    return Moments(first["user"].to_numpy(), features, whole, times, others, first["user_row"].to_numpy() if has_users else None)


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
    """What a served unit is asked with: the catalogue's columns, users' (blank for strangers), and the user's moment's."""

    items: pl.DataFrame
    users: pl.DataFrame | None
    moments: Moments

    def stored(self, graph: Graph, limit: int) -> RawColumns:
        """With what the served unit takes in place of large tables."""
        taken = graph.stored(limit)
        items, users = (tuple(one for one in taken if one.side == side) for side in ("item", "user"))
        people = self.users
        if users and people is None:
            people = pl.DataFrame({graph.user: graph.key(graph.user).state.values.sort()})
        return RawColumns(
            with_values(self.items, items), with_values(people, users) if people is not None and users else people, self.moments
        )

    def of(self, served: Signature, own: Published | None = None) -> Callable[[Ints, Ints], dict[str, Array]]:
        """Invalid where the unit asks for what isn't there, or is of another kind by now; with its `own` values, where they don't say it
        either."""
        here = self if own is None else self._without_stored()
        items = {one.name: here._of_items(one, served, own) for one in served.side("item")}
        people = here._of_users(served, own)
        moments = {one.name: self._of_moments(one, served) for one in served.side("context")}

        def ask(users: Ints, rows: Ints) -> dict[str, Array]:
            found = {name: column[rows] for name, column in items.items()} | {served.user: users}
            for keys, columns in people:
                places = placed(keys, users)
                found |= {name: column[places] for name, column in columns.items()}
            if moments:
                places = self.moments.places(users)
                found |= {name: column[places] for name, column in moments.items()}
            return found

        return ask

    def _without_stored(self) -> RawColumns:
        """What is called so is of another version, if it is there."""
        others = pl.exclude("^.*" + re.escape(STORED) + "$")
        return replace(self, items=self.items.select(others), users=None if self.users is None else self.users.select(others))

    def _of_items(self, one: Input, served: Signature, own: Published | None) -> Array:
        try:
            return raw_column(self.items, one, "the items table")
        except Invalid:
            if own is None or served.item not in self.items.columns:
                raise
        return own.items(one, self.items[served.item].to_numpy())

    def _of_users(self, served: Signature, own: Published | None) -> list[tuple[Ints, dict[str, Array]]]:
        """Tables by key, the last row blank."""
        people = self.users if self.users is not None else pl.DataFrame({served.user: pl.Series([], dtype=pl.Int64)})
        whole = pl.concat([people, people.clear(1)])
        known: dict[str, Array] = {}
        lacking: dict[str | None, list[Input]] = {}
        for one in served.side("user"):
            if one.name == served.user:
                continue
            try:
                known[one.name] = raw_column(whole, one, "the users table")
            except Invalid:
                if own is None:
                    raise
                lacking.setdefault(one.view, []).append(one)
        found = [(people[served.user].to_numpy(), known)] if known else []
        return found + [own.users(some, self.moments.users) for some in lacking.values() if own is not None]

    def _of_moments(self, one: Input, served: Signature) -> Array:
        if one.name not in self.moments.raw.columns:
            if one.name == served.time:
                return self.moments.times
            if one.name == served.session:
                return np.full((len(self.moments.users) + 1, one.width or 1), BLANK["int64"], np.int64)
            if one.name in self.moments.extra.columns:
                return _unread(self.moments.extra, one)
        return raw_column(self.moments.raw, one, "the interactions")

    def frame(self, graph: Graph, users: Ints, rows: Ints) -> pl.DataFrame:
        """The same as prepared columns, for the graph itself."""
        parts = [pl.DataFrame({graph.user: users}), self.items.select(graph.item, *(one.name for one in graph.raws("items")))[rows]]
        if (columns := [one.name for one in graph.raws("users")]) and self.users is not None:
            people = pl.concat([self.users, self.users.clear(1)])
            parts.append(people.select(columns)[placed(self.users[graph.user].to_numpy(), users)])
        if self.moments.raw.width:
            parts.append(self.moments.raw[self.moments.places(users)])
        return pl.concat(parts, how="horizontal")


def _unread(table: pl.DataFrame, one: Input) -> Array:
    """A column that this run's family doesn't read, as another one's unit takes it; the last row is the blank one."""
    dtype = table[one.name].dtype
    inner = dtype.inner if isinstance(dtype, pl.List) else dtype
    text = inner in (pl.String, pl.Categorical, pl.Enum)
    if isinstance(dtype, pl.List) != (one.width is not None) or text != (one.dtype == "string"):
        raise Invalid(f"the interactions' column '{one.name}' is {dtype}: how it becomes {one.dtype} is known to the serving version alone")
    time = isinstance(inner, pl.Datetime | pl.Date)
    column = Raw(one.name, one.dtype, "context", many=one.width is not None, table="interactions", time=time)
    known = table.select(column.prepared(dtype))
    return raw_column(pl.concat([known, known.clear(1)]), one, "the interactions")


def read_raw(fetch: Callable[[str], Path], has_users: bool, meetings: Meetings) -> RawColumns:
    """With users as the meetings know them."""
    users = pl.read_parquet(fetch("users.parquet")) if has_users else None
    if users is not None and (rows := meetings.users.rows) is not None:
        users = users[rows]
    return RawColumns(pl.read_parquet(fetch("items.parquet")), users, meetings.moments)
