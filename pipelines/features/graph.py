"""The feature graph: compiled once from the spec, fitted once, and run by polars or NVTabular in training and by ONNX in serving.

Fitted state is neutral: Parquet for whatever has a row a value, and `features.json`, which says the rest and how the graph is built again.
It is what etl publishes, what training and export read, and what a warm run grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipelines.features.columns import Raw, Side, Table
from pipelines.features.compile import Tables, compile_operators
from pipelines.features.engines.history import History
from pipelines.features.engines.polars import Data, compute
from pipelines.features.lowering import IR_VERSION, ML_OPSET, OPSET, Lowering
from pipelines.features.operators.base import Feature, Mode, Operator, Saved, output_name
from pipelines.features.operators.categorify import Categorify
from pipelines.features.operators.kinds import Ordered, is_ordered
from pipelines.features.operators.target import TargetEncode
from pipelines.features.reading import READS, Left, Reads, read_by
from pipelines.features.schemas import read_schema, write_schema
from pipelines.features.statistics import Found, Statistic
from pipelines.features.stored import Stored, stored
from pipelines.features.stored import lower as lower_stored
from shared.contracts.features import Operator as Entry
from shared.contracts.features import mentioned
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid

__all__ = ["FEATURES", "IR_VERSION", "ML_OPSET", "OPSET", "Graph", "Tables", "check_same", "compile_graph", "load_graph"]

FEATURES = "features.json"
VERSION = 2
USER_ROW = "~user_row"
ALL: tuple[Side, ...] = ("user", "item", "context", "pair")
_ENTRIES: TypeAdapter[tuple[Any, ...]] = TypeAdapter(tuple[Entry, ...])
Engine = Callable[[list[Statistic], Data], Found]


@dataclass(frozen=True)
class Graph:
    entries: tuple[Any, ...]
    tables: Tables
    operators: tuple[Operator, ...]
    reads: Reads = "deep"
    left: tuple[Left, ...] = ()
    """What the entries say beyond the operators: who reads the graph has no use for it."""

    @property
    def user(self) -> str:
        return self.tables.user

    @property
    def item(self) -> str:
        return self.tables.item

    @property
    def row(self) -> tuple[str, str, str]:
        return self.tables.user, self.tables.item, self.tables.time

    @property
    def features(self) -> tuple[Feature, ...]:
        """What models get."""
        return tuple({feature.name: feature for one in self.operators for feature in one.features}.values())

    def side(self, *sides: Side) -> tuple[Feature, ...]:
        return tuple(one for one in self.features if one.side in sides)

    @property
    def extra(self) -> dict[str, pl.DataType]:
        """The interactions' columns beyond keys and time that the entries may name."""
        return {name: dtype for name, dtype in self.tables.interactions.items() if name not in self.row}

    @property
    def codes(self) -> tuple[Feature, ...]:
        return tuple(one for one in self.features if one.kind == "code")

    @property
    def numbers(self) -> tuple[Feature, ...]:
        return tuple(one for one in self.features if one.kind == "float32")

    def sources(self, feature: Feature) -> tuple[str, ...]:
        """The raw columns that it is made of."""
        at = next(at for at, one in enumerate(self.operators) if any(found.made == feature.made for found in one.features))
        makers = [self.operators[one] for one in (*_makers([at], self.operators), at)]
        return tuple(dict.fromkeys(column.name for one in makers for column in one.inputs if isinstance(column, Raw)))

    def key(self, column: str) -> Categorify:
        """What encodes the user's key, or the item's."""
        return next(one for one in self.operators if isinstance(one, Categorify) and one.column.name == column)

    def cardinalities(self) -> dict[str, int]:
        return {one.name: one.cardinality for one in self.codes if one.cardinality is not None}

    @property
    def ordered(self) -> tuple[Ordered, ...]:
        return tuple(one for one in self.operators if is_ordered(one))

    @property
    def paged(self) -> bool:
        """Whether views of pages are of interest."""
        return any(one.pages for one in self.ordered)

    @property
    def folds(self) -> tuple[TargetEncode, ...]:
        return tuple(one for one in self.operators if isinstance(one, TargetEncode))

    def raws(self, *tables: Table) -> tuple[Raw, ...]:
        """The columns that are taken from those tables; keys are the interactions'."""
        found: dict[str, Raw] = {}
        taken = [column for one in self.operators for column in one.inputs]  # these know their width, once fitted
        counted = [column for one in self.operators if (words := getattr(one, "words", None)) for column in words.columns]
        for column in (*taken, *counted):
            if isinstance(column, Raw) and (not tables or column.table in tables):
                before = found.setdefault(column.name, column)
                if (before.kind, before.time, before.many) != (column.kind, column.time, column.many):
                    raise Invalid(f"features: '{column.name}' is taken as {_taken(before)} and as {_taken(column)}: one of them must go")
        return tuple(found.values())

    def prepared(self, table: Table) -> list[pl.Expr]:
        """The columns of a table as operators take them."""
        schema = self.tables.schema(table)
        return [one.prepared(schema[one.source or one.name]) for one in self.raws(table) if (one.source or one.name) in schema]

    def fit(self, data: Data, known: Graph | None = None, engine: Engine = compute) -> Graph:
        """On prepared tables; with `known`, grows it by them. Statistics that don't need one another are taken together."""
        fitted: dict[int, Operator] = {}
        made: dict[str, Feature] = {}
        for level in _levels(self.operators):
            asking = [at for at in level if self.operators[at].asks()]
            asks = [ask for at in asking for ask in self.operators[at].asks()]
            before = [fitted[at] for at in _makers(asking, self.operators)]
            found = engine(asks, _with(data, before)) if asks else {}
            for at in level:
                old: Any = known.operators[at] if known else None
                one = fitted[at] = self.operators[at].fitted(found, old, made)
                made |= {feature.made: feature for feature in one.features}
        return replace(self, operators=tuple(fitted[at] for at in range(len(self.operators))))

    def transform(
        self, frame: pl.LazyFrame, *sides: Side, mode: Mode = "serve", history: History | None = None, keep: Iterable[str | pl.Expr] = ()
    ) -> pl.LazyFrame:
        """The features of some sides (all, if none is said), named as themselves, of prepared columns. With their history, rows of the
        data have what came before them."""
        frame = _applied(frame, self.needed(*sides), mode, history)
        return frame.select(*keep, *(self.finished(one) for one in self.side(*(sides or ALL))))

    def finished(self, feature: Feature) -> pl.Expr:
        """As models get it: a number that is missing is 0, but for those who take it as missing."""
        value = pl.col(feature.made)
        if feature.kind == "float32" and feature.width is None:
            value = value.fill_null(float("nan")) if self.keeps_missing else value.fill_nan(0.0).fill_null(0.0)
        return value.alias(feature.name)

    @property
    def keeps_missing(self) -> bool:
        return self.reads == "trees"

    def read_as(self, reads: Reads) -> Graph:
        """Of a whole and unfitted one what a family reads of it."""
        operators, left = read_by(self.operators, reads, (self.user, self.item))
        return replace(self, operators=operators, reads=reads, left=left)

    def needed(self, *sides: Side) -> list[Operator]:
        """What makes the features of some sides, in order."""
        wanted = [at for at, one in enumerate(self.operators) if {out.side for out in one.outputs} <= set(sides or ALL)]
        return [self.operators[at] for at in sorted({*wanted, *_makers(wanted, self.operators)})]

    def table(self, frame: pl.LazyFrame, side: Side) -> pl.LazyFrame:
        """The features of users or of items, row by row; beside what a target's mean is, `NAME@folds`: what it is out of each fold."""
        makers = [one for one in self.folds if one.outputs[0].side == side]
        for one in makers:
            frame = one.by_fold(frame)
        apart = [f"{out.name}@folds" for one in makers for out in one.outputs]
        made = self.transform(frame, side, keep=apart)
        return made.rename({name: name.removeprefix(output_name("")) for name in apart})

    def lower(self, limit: int | None = None, lists: Lists = "padded") -> Any:
        """The ONNX model from raw columns to features."""
        return self.lowering(limit, lists).model([(one.output, one.made, one.kind, one.width) for one in self.features])

    def lowering(self, limit: int | None = None, lists: Lists = "padded") -> Lowering:
        import numpy as np

        build = Lowering(lists)
        for key in (self.user, self.item):
            build.value(self.key(key).column)  # the unit takes them, whatever looks at them
        instead = self.stored(limit)
        for one in self.operators:
            if taken := tuple(cut for cut in instead if cut.operator is one):
                lower_stored(build, taken)
            else:
                one.lower(build)
        for feature in () if self.keeps_missing else self.numbers:
            value = build.tensor(feature.made)
            build.gives(feature.made, build.node("Where", build.node("IsNaN", value), build.constant(np.array(0, np.float32)), value))
        return build

    def stored(self, limit: int | None = None) -> tuple[Stored, ...]:
        """What the served unit takes in place of tables with more rows than that."""
        return stored(self.operators, limit)

    def describe(self) -> list[dict[str, Any]]:
        makers = {feature.name: one for one in self.operators for feature in one.features}
        return [
            {
                "name": one.name,
                "operator": makers[one.name].kind,
                "of": list(self.sources(one)),
                "side": one.side,
                "kind": one.kind,
                "width": one.width,
                "cardinality": one.cardinality,
            }
            for one in self.features
        ]

    def save(self, folder: Path) -> dict[str, Path]:
        files: dict[str, Path] = {}
        facts = []
        for one in self.operators:
            saved = one.saved()
            facts.append(dict(saved.facts))
            for name, frame in saved.frames.items():
                path = files[f"{name}.parquet"] = folder / f"{name}.parquet"
                frame.write_parquet(path, compression="zstd", statistics=False)
        files[FEATURES] = folder / FEATURES
        document = {
            "version": VERSION,
            "user": self.tables.user,
            "item": self.tables.item,
            "time": self.tables.time,
            "tables": {name: write_schema(self._needed(name)) for name in ("interactions", "items", "users")},
            "entries": [one.model_dump(mode="json", by_alias=True) for one in self.entries],
            "state": facts,
            "files": sorted(name for name in files if name != FEATURES),
        } | ({} if self.reads == "deep" else {"reads": self.reads})
        files[FEATURES].write_text(json.dumps(document, indent=1))
        return files

    def _needed(self, table: Table) -> pl.Schema:
        """Of a table's columns, those that the graph looks at, keys and time included; where not all of the entries are read, those
        that they name too, so that it can be compiled again."""
        names = {one.source or one.name for one in self.raws(table)} | ({*self.row} if table == "interactions" else set())
        names |= {target for one in self.folds for target in one.targets} if table == "interactions" else set()
        if self.reads != "deep":
            names |= {name for entry in self.entries for name in mentioned(entry)}
        return pl.Schema({name: dtype for name, dtype in self.tables.schema(table).items() if name in names})


def compile_graph(entries: tuple[Any, ...], tables: Tables, reads: Reads = "deep") -> Graph:
    """All entries are compiled, so that what is wrong with one is said; what a family doesn't read is left out then."""
    graph = Graph(entries, tables, compile_operators(entries, tables))
    graph.raws()
    return graph.read_as(reads)


def load_graph(fetch: Callable[[str], Path]) -> Graph:
    """Reads a fitted graph; `fetch` gives the path of a published file."""
    document = json.loads(fetch(FEATURES).read_text())
    if document.get("version") != VERSION:
        raise Invalid(f"{FEATURES}: it is of format {document.get('version')}, this is {VERSION}: start a full run")
    interactions, items, users = (read_schema(document["tables"][name]) for name in ("interactions", "items", "users"))
    tables = Tables(document["user"], document["item"], document["time"], interactions, items, users)
    reads = document.get("reads", "deep")
    if reads not in READS:
        raise Invalid(f"{FEATURES}: it is for families that read '{reads}', of which this release has none: start a full run")
    graph = compile_graph(_ENTRIES.validate_python(document["entries"]), tables, reads)
    frames = {name.removesuffix(".parquet"): pl.read_parquet(fetch(name)) for name in document["files"]}
    restored: list[Operator] = []
    made: dict[str, Feature] = {}
    for one, facts in zip(graph.operators, document["state"], strict=True):
        restored.append(one.restored(Saved(facts, frames), made))
        made |= {feature.made: feature for feature in restored[-1].features}
    return replace(graph, operators=tuple(restored))


def check_same(graph: Graph, parent: Graph) -> None:
    """A warm run keeps the parent's features: codes and tables could not keep their meaning otherwise."""
    ours, theirs = ([(one.name, one.kind, one.time, one.many) for one in which.raws()] for which in (graph, parent))
    if graph.entries != parent.entries or ours != theirs:
        raise Invalid("features: they have changed since the parent: a warm run can't change them, start a full one")


def joined(data: Mapping[Table, pl.LazyFrame], graph: Graph) -> pl.LazyFrame:
    """The interactions with what the items and users tables know of theirs, as far as something is made of it. Where the interactions say
    which row of the users table is theirs (`USER_ROW`), it is that one."""
    frame = data["interactions"]
    user = USER_ROW if USER_ROW in frame.collect_schema() else graph.user
    for table, key in (("items", graph.item), ("users", user)):
        if table in data and (columns := [one.name for one in graph.raws(table)]):  # type: ignore[arg-type]
            frame = frame.join(data[table].select(key, *columns), on=key, how="left", maintain_order="left")  # type: ignore[index]
    return frame


def _levels(operators: tuple[Operator, ...]) -> list[list[int]]:
    """By what has to be fitted before."""
    maker = {out.name: at for at, one in enumerate(operators) for out in one.outputs}
    depth: list[int] = []
    for one in operators:
        before = [depth[maker[column.name]] + (1 if one.asks() else 0) for column in one.inputs if column.name in maker]
        depth.append(max(before, default=0))
    return [[at for at, found in enumerate(depth) if found == level] for level in range(max(depth, default=-1) + 1)]


def _makers(level: list[int], operators: tuple[Operator, ...]) -> list[int]:
    """What makes the columns that some operators take, and what those are made of, in order."""
    maker = {out.name: at for at, one in enumerate(operators) for out in one.outputs}
    wanted: set[int] = set()
    front = list(level)
    while front:
        made = {maker[column.name] for column in operators[front.pop()].inputs if column.name in maker} - wanted
        wanted |= made
        front += made
    return sorted(wanted)


def _with(data: Data, operators: list[Operator]) -> Data:
    """The tables with what those operators make of them."""
    rows = _applied(data.interactions, operators, "rows", data.history)
    return replace(data, interactions=rows, items=_of(data.items, operators, "item"), users=_of(data.users, operators, "user"))


def _applied(frame: pl.LazyFrame, operators: Iterable[Operator], mode: Mode, history: History | None) -> pl.LazyFrame:
    """`history`: then what looks at a user's rows in order sees those before the row, whatever the mode."""
    for one in operators:
        frame = one.apply(history.added(frame, one), "rows") if history is not None and is_ordered(one) else one.apply(frame, mode)
    return frame


def _of(frame: pl.LazyFrame | None, operators: Iterable[Operator], side: Side) -> pl.LazyFrame | None:
    if frame is None:
        return None
    names = set(frame.collect_schema().names())
    for one in operators:
        if all(out.side == side for out in one.outputs) and all(column.name in names for column in one.inputs):
            frame = one.apply(frame, "serve")
            names |= {out.name for out in one.outputs}
    return frame


def _taken(column: Raw) -> str:
    return "a time" if column.time else "a list" if column.many else {"int64": "an integer", "string": "text"}.get(column.kind, "a number")
