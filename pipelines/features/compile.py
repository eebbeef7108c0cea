"""Compiles a spec's `features` and the tables' schemas to operators; every fault raises here, before data is read."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from pipelines.features.columns import HASHTAGS, MENTIONS, Column, Kind, Raw, Side, Table
from pipelines.features.operators.base import Operator, made, output_name, plain
from pipelines.features.operators.bucketise import Bucketise
from pipelines.features.operators.categorify import Categorify, CountedVocabulary, MultiHot
from pipelines.features.operators.codes import Cross, OneHot
from pipelines.features.operators.keyed import key_kinds
from pipelines.features.operators.lag import Lag
from pipelines.features.operators.numbers import Clip, Fill, Log, Normalise
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import CountEncode, TargetEncode
from pipelines.features.operators.times import Calendar, Cyclic
from pipelines.features.operators.vector import Vector
from pipelines.features.vocabulary import EntryRule
from shared.contracts import features as contract
from shared.domain.errors import BadData, Invalid

_SIDES: dict[Table, Side] = {"interactions": "context", "items": "item", "users": "user"}
_TEXT = (pl.String, pl.Categorical, pl.Enum)


@dataclass(frozen=True)
class Tables:
    """Schemas of the data. `names`: display names of the tables."""

    user: str
    item: str
    time: str
    interactions: pl.Schema
    items: pl.Schema = field(default_factory=pl.Schema)
    users: pl.Schema = field(default_factory=pl.Schema)
    names: Mapping[Table, str] = field(default_factory=dict)

    def schema(self, table: Table) -> pl.Schema:
        return {"interactions": self.interactions, "items": self.items, "users": self.users}[table]

    def name(self, table: Table) -> str:
        return self.names.get(table, f"the {table} table")


def compile_operators(entries: tuple[contract.Any_, ...], tables: Tables) -> tuple[Operator, ...]:
    """Returns operators in an order in which inputs come before their users."""
    compiler = _Compiler(tables, entries)
    for entry in entries:
        compiler.take(entry)
    return tuple(compiler.made)


class _Compiler:
    def __init__(self, tables: Tables, entries: tuple[contract.Any_, ...]) -> None:
        self.tables = tables
        self.made: list[Operator] = []
        self.features: dict[str, Column] = {}
        self.extracted: dict[str, Raw] = {}
        self.shared: dict[str, list[tuple[Raw, EntryRule]]] = {}
        self.paged = any(isinstance(entry, contract.Sequence) and entry.sequence.pages for entry in entries)
        for entry in entries:
            if isinstance(entry, contract.Extract):
                self._extract(entry)
        for entry in entries:
            for column, rule, name in self._counted(entry):
                self.shared.setdefault(name, []).append((column, rule))

    @property
    def row(self) -> tuple[str, str, str]:
        return self.tables.user, self.tables.item, self.tables.time

    def take(self, entry: contract.Any_) -> None:
        for operator in _MAKERS[type(entry)](self, entry):
            self._add(operator)

    # Inputs of operators.

    def raw(self, name: str) -> tuple[Table, pl.DataType, Side]:
        """Returns a column's table, type and side."""
        if name == self.tables.user:
            return "interactions", self.tables.interactions[name], "user"
        if name == self.tables.item:
            return "interactions", self.tables.interactions[name], "item"
        tables: list[Table] = [table for table in _SIDES if name in self.tables.schema(table)]
        if not tables:
            near = difflib.get_close_matches(name, self._column_names(), n=1, cutoff=0.6)
            hint = f": did you mean '{near[0]}'?" if near else f"; available columns: {', '.join(sorted(self._column_names()))}"
            raise Invalid(f"features: column '{name}' is neither a key nor in {self._places()}{hint}")
        if len(tables) > 1:
            first, other = (self.tables.name(table) for table in tables[:2])
            raise Invalid(f"features: column '{name}' is in {first} and in {other}: rename it in one of them")
        return tables[0], self.tables.schema(tables[0])[name], _SIDES[tables[0]]

    def key(self, name: str) -> Raw:
        if name in self.extracted:
            raise Invalid(f"features: '{name}' has several values per row: use 'multi_hot', not 'categorify'")
        table, dtype, side = self.raw(name)
        kind = _key_kind(dtype, name, self.tables.name(table), "categorify")
        return Raw(name, kind, side, table=table, time=name == self.tables.time)

    def lists(self, entry: contract.MultiHot) -> Raw:
        name = entry.multi_hot
        if name in (self.tables.user, self.tables.item):
            raise Invalid(f"features: '{name}' is a key: use 'categorify', not 'multi_hot'")
        if name in self.extracted:
            if entry.separator is not None:
                raise Invalid(f"features: '{name}' is already a list column: remove its separator")
            return replace(self.extracted[name], max_length=entry.max_length)
        table, dtype, side = self.raw(name)
        kind = _list_kind(dtype, name, entry.separator, self.tables.name(table))
        return Raw(name, kind, side, many=True, table=table, separator=entry.separator, max_length=entry.max_length)

    def time(self, name: str, operator: str) -> Raw:
        table, dtype, side = self.raw(name)
        if name in (self.tables.user, self.tables.item) or not (dtype.is_numeric() or isinstance(dtype, pl.Datetime | pl.Date)):
            raise Invalid(f"features: {operator} takes a time, as seconds since 1970 or a timestamp; '{name}' is {dtype}")
        return Raw(name, "int64", side, table=table, time=True)

    def number(self, name: str, plainly: bool = False) -> tuple[Column, Column, Table]:
        """Returns source, output and table of a number that is changed in place: the feature's current value, else the raw column."""
        before = None if plainly and self._is_raw(name) else self.features.get(name)
        if before is not None and before.kind == "float32":
            maker = next(operator for operator in reversed(self.made) if before in operator.outputs)
            table: Table = maker.table if hasattr(maker, "table") else "interactions"
            if maker.kind == "target_encode":
                raise Invalid(f"features: '{name}' has a different value in each training fold (target_encode): no operator can change it")
            if maker.kind in ("one_hot", "vector"):
                raise Invalid(f"features: '{name}' is a vector: number operators cannot change it")
            step = sum(1 for operator in self.made for out in operator.outputs if out.name.split("~")[0] == output_name(name))
            return before, Column(f"{output_name(name)}~{step}", "float32", before.side), table
        table, dtype, side = self.raw(name)
        if name in (self.tables.user, self.tables.item) or not (dtype.is_numeric() or dtype == pl.Boolean):
            raise Invalid(f"features: '{name}' is {'a key' if name in (self.tables.user, self.tables.item) else dtype}, not a number")
        kind: Kind = "int64" if dtype.is_integer() else "float32"
        raw = Raw(name, kind, side, table=table, time=name == self.tables.time)
        return raw, made(name, "float32", side), table

    def keyed(self, name: str, operator: str) -> Column:
        """Returns the key column of a statistics table: raw ids, words, or a feature of codes."""
        if name in self.features and not self._is_raw(name):
            column: Column = self.features[name]
        else:
            column = self.key(name)
        if not key_kinds((column,)):
            raise Invalid(
                f"features: {operator} takes ids, words or codes with one value per row; '{name}' has several values or is a number"
            )
        return column

    def _is_raw(self, name: str) -> bool:
        return any(name in self.tables.schema(table) for table in _SIDES)

    def codes(self, name: str, operator: str) -> Column:
        column = self.features.get(name)
        if column is None or column.kind != "code":
            codes = sorted(feature for feature, column in self.features.items() if column.kind == "code")
            raise Invalid(
                f"features: {operator} takes features with codes, not '{name}' at this entry; available: {', '.join(codes) or 'none'}"
            )
        return column

    # Operators with further checks.

    def _counted(self, entry: contract.Any_) -> list[tuple[Raw, EntryRule, str]]:
        if isinstance(entry, contract.Categorify):
            rule = EntryRule(entry.min_count, entry.max_size, entry.hash_buckets, entry.values)
            return [(self._with_rule(self.key(name), rule), rule, entry.vocabulary or name) for name in entry.categorify]
        if isinstance(entry, contract.MultiHot):
            rule = EntryRule(entry.min_count, entry.max_size, entry.hash_buckets, entry.values)
            return [(self._with_rule(self.lists(entry), rule), rule, entry.vocabulary or entry.multi_hot)]
        return []

    def _with_rule(self, column: Raw, rule: EntryRule) -> Raw:
        if rule.hash_buckets is not None and column.kind != "int64":
            raise Invalid(
                f"features: hash_buckets takes integers; '{column.name}' is text, which the served graph cannot hash: set min_count"
            )
        if rule.values and isinstance(rule.values[0], str) != (column.kind == "string"):
            theirs = "text" if column.kind == "string" else "integers"
            raise Invalid(f"features: '{column.name}' has {theirs} in the data, but the listed values are not {theirs}")
        return column

    def words(self, name: str) -> CountedVocabulary:
        members = self.shared[name]
        rules, kinds = {rule for _, rule in members}, {column.kind for column, _ in members}
        if len(rules) > 1 or len(kinds) > 1:
            difference = "min_count, max_size, hash_buckets and values" if len(rules) > 1 else "kind of values"
            raise Invalid(f"features: columns of the vocabulary '{name}' must have the same {difference}")
        tables = tuple(column.table or "interactions" for column, _ in members)
        pages = self.tables.item if self.paged and name == self.tables.item else None
        return CountedVocabulary(name, tuple(column for column, _ in members), members[0][1], tables, pages)

    def target(self, of: contract.TargetOf) -> Operator:
        columns = tuple(self.keyed(name, "target_encode") for name in of.of)
        for target in of.target:
            if target == "label":
                continue
            if target not in self.tables.interactions or not self.tables.interactions[target].is_numeric():
                raise Invalid(f"features: target_encode: '{target}' is neither 'label' nor a number column of the interactions")
        return TargetEncode(columns, of.target, of.folds, of.smoothing, self.row)

    def lag(self, of: contract.LagOf) -> Operator:
        self._by_user(of.by, "lag")
        value: Column
        if of.of == self.tables.time:
            value = self.time(of.of, "lag")
        else:
            table, dtype, side = self.raw(of.of)
            if table != "interactions" or not dtype.is_numeric() or of.of in (self.tables.user, self.tables.item):
                raise Invalid(f"features: lag takes the time or a number of the interactions; '{of.of}' is neither")
            value = Raw(of.of, "int64" if dtype.is_integer() else "float32", side, table=table)
        return Lag(value, self.key(of.by), of.steps, self.row)

    def _by_user(self, by: str, operator: str) -> None:
        if by != self.tables.user:
            raise Invalid(f"features: {operator}.by: rows are ordered by user, so it must be '{self.tables.user}', not '{by}'")

    def cross(self, entry: contract.Cross) -> Operator:
        columns = tuple(self.codes(name, "cross") for name in entry.cross)
        several = [column for column in columns if column.many]
        if len(several) > 1:
            raise Invalid("features: cross: only one feature may have several values per row")
        return Cross(columns, entry.buckets)

    def vector(self, of: contract.VectorOf) -> Operator:
        side: Side | None = {self.tables.user: "user", self.tables.item: "item"}.get(of.of)  # type: ignore[assignment]
        if side is None:
            raise Invalid(f"features: vector.of: it must be '{self.tables.item}' or '{self.tables.user}', not '{of.of}'")
        table: Table = "items" if side == "item" else "users"
        return Vector(Raw(of.output, "float32", side, many=True, table=table, width=of.width), of.output)

    def sequence(self, of: contract.SequenceOf) -> Operator:
        self._by_user(of.by, "sequence")
        if of.of != self.tables.item:
            raise Invalid(f"features: sequence.of: it must be '{self.tables.item}', not '{of.of}'")
        window, gap = (None if duration is None else int(duration.total_seconds()) for duration in (of.window, of.gap))
        if of.of not in self.shared:
            raise Invalid(f"features: sequence: it uses the codes of '{of.of}': add a 'categorify' entry for '{of.of}'")
        words, time = self.words(of.of), self.time(self.tables.time, "sequence")
        return Sequence(self.key(of.of), self.key(of.by), words, of.length, of.liked, of.reverse, self.row, time, window, gap, of.pages)

    def _extract(self, entry: contract.Extract) -> None:
        of = entry.extract
        table, dtype, side = self.raw(of.of)
        if dtype not in _TEXT:
            raise BadData(f"{self.tables.name(table)}: column '{of.of}' is {dtype}: extract takes text")
        if of.output in self.extracted or self._is_raw(of.output):
            raise Invalid(f"features: extract: column '{of.output}' already exists: set another name with 'as'")
        pattern = of.pattern or {"mentions": MENTIONS, "hashtags": HASHTAGS}[of.what or "mentions"]
        self.extracted[of.output] = Raw(of.output, "string", side, many=True, table=table, pattern=pattern, source=of.of)

    def _add(self, operator: Operator) -> None:
        for output in operator.outputs:
            name = plain(output)
            if name in self.features and "~" not in output.name:
                raise Invalid(f"features: '{name}' is produced twice")
            self.features[name] = output
        self.made.append(operator)

    def _column_names(self) -> list[str]:
        names = [name for table in _SIDES for name in self.tables.schema(table).names() if not name.startswith("~")]
        return [*names, *self.extracted]

    def _places(self) -> str:
        return " or ".join(self.tables.name(table) for table in _SIDES if self.tables.schema(table))


def _key_kind(dtype: pl.DataType, name: str, table: str, operator: str) -> Kind:
    if dtype.is_integer():
        return "int64"
    if dtype in _TEXT:
        return "string"
    raise BadData(f"{table}: column '{name}' is {dtype}: {operator} takes integers or text")


def _list_kind(dtype: pl.DataType, name: str, separator: str | None, table: str) -> Kind:
    if isinstance(dtype, pl.List | pl.Array):
        if separator is not None:
            raise Invalid(f"features: '{name}' is a list column in {table}: remove its separator")
        inner = dtype.inner if isinstance(dtype.inner, pl.DataType) else dtype.inner()
        return _key_kind(inner, name, table, "multi_hot")
    if dtype not in _TEXT:
        raise BadData(f"{table}: column '{name}' is {dtype}: multi_hot takes lists or delimited text")
    if separator is None:
        raise Invalid(f"features: '{name}' is text in {table}: set its separator, such as '|'")
    return "string"


def _fill(compiler: _Compiler, entry: contract.Fill) -> Iterator[Operator]:
    for name in entry.fill:
        source, output, table = compiler.number(name)
        flag = made(f"{name}_missing", "float32", source.side) if entry.flag else None
        yield Fill(source, output, table, by=entry.with_, flag=flag)


def _bucketise(compiler: _Compiler, entry: contract.Bucketise) -> Iterator[Operator]:
    for name in entry.bucketise:
        source, _, table = compiler.number(name, plainly=True)
        yield Bucketise(source, table, entry.at, entry.quantiles)


# lazily, one operator at a time: each finds the outputs of earlier ones
_MAKERS: Mapping[type, Callable[[_Compiler, Any], Iterable[Operator]]] = {
    contract.Categorify: lambda on, entry: (Categorify(on.key(name), on.words(entry.vocabulary or name)) for name in entry.categorify),
    contract.MultiHot: lambda on, entry: [MultiHot(on.lists(entry), on.words(entry.vocabulary or entry.multi_hot))],
    contract.Normalise: lambda on, entry: (Normalise(*on.number(name), to=entry.to) for name in entry.normalise),
    contract.Log: lambda on, entry: (Log(*on.number(name)) for name in entry.log),
    contract.Clip: lambda on, entry: (Clip(*on.number(name), low=entry.min, high=entry.max) for name in entry.clip),
    contract.Fill: _fill,
    contract.Bucketise: _bucketise,
    contract.TargetEncode: lambda on, entry: [on.target(entry.target_encode)],
    contract.CountEncode: lambda on, entry: (CountEncode(on.keyed(name, "count_encode"), entry.scale) for name in entry.count_encode),
    contract.Lag: lambda on, entry: [on.lag(entry.lag)],
    contract.Cyclic: lambda on, entry: [Cyclic(on.time(entry.cyclic.of, "cyclic"), entry.cyclic.periods)],
    contract.Calendar: lambda on, entry: [Calendar(on.time(entry.calendar.of, "calendar"), entry.calendar.parts)],
    contract.Cross: lambda on, entry: [on.cross(entry)],
    contract.OneHot: lambda on, entry: (OneHot(on.codes(name, "one_hot"), entry.max_width) for name in entry.one_hot),
    contract.Vector: lambda on, entry: [on.vector(entry.vector)],
    contract.Sequence: lambda on, entry: [on.sequence(entry.sequence)],
    contract.Extract: lambda on, entry: [],  # only declares a column for other operators
}
