"""Feature graph: compiled from the spec, fitted, and run by polars or NVTabular in training and by ONNX in serving.

Fitted state is neutral: Parquet for values, and `features.json` for everything else, from which the graph is rebuilt. Etl publishes the
state, training and export read it, a warm run grows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipelines.features.columns import Raw, Side, Table
from pipelines.features.compile import Tables, compile_operators
from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.polars import PreparedTables, compute
from pipelines.features.lowering import Lowering
from pipelines.features.onnx_builder import IR_VERSION, OPSET, tensor_info
from pipelines.features.operators.base import RECENT, RECENT_LIST, Feature, Mode, Operator, SavedState, output_name
from pipelines.features.operators.categorify import Categorify
from pipelines.features.operators.kinds import Ordered, is_ordered
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import TargetEncode
from pipelines.features.reading import READS, Reads, UnusedFeature, read_by
from pipelines.features.schemas import read_schema, write_schema
from pipelines.features.statistics import Results, Statistic
from pipelines.features.stored import StoredInput, stored
from pipelines.features.stored import lower as lower_stored
from shared.contracts.features import Operator as Entry
from shared.contracts.features import mentioned
from shared.contracts.serving import Lists
from shared.domain.errors import Invalid

__all__ = ["FEATURES", "IR_VERSION", "OPSET", "Graph", "Tables", "check_same", "compile_graph", "load_graph"]

FEATURES = "features.json"
VERSION = 2
USER_ROW = "~user_row"
ALL: tuple[Side, ...] = ("user", "item", "context", "pair")
_ENTRIES: TypeAdapter[tuple[Any, ...]] = TypeAdapter(tuple[Entry, ...])
Engine = Callable[[list[Statistic], PreparedTables], Results]


@dataclass(frozen=True)
class Graph:
    entries: tuple[Any, ...]
    tables: Tables
    operators: tuple[Operator, ...]
    reads: Reads = "deep"
    left: tuple[UnusedFeature, ...] = ()
    """Parts of the entries that the reading family doesn't need."""

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
        """Features for models."""
        return tuple({feature.name: feature for operator in self.operators for feature in operator.features}.values())

    def side(self, *sides: Side) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.side in sides)

    @property
    def extra(self) -> dict[str, pl.DataType]:
        """Columns of the interactions, other than keys and time, that entries may name."""
        return {name: dtype for name, dtype in self.tables.interactions.items() if name not in self.row}

    @property
    def codes(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.kind == "code")

    @property
    def numbers(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.kind == "float32")

    def sources(self, feature: Feature) -> tuple[str, ...]:
        """Returns the raw columns that the feature is made of."""
        at = next(at for at, operator in enumerate(self.operators) if any(other.made == feature.made for other in operator.features))
        makers = [self.operators[index] for index in (*_makers([at], self.operators), at)]
        return tuple(dict.fromkeys(column.name for maker in makers for column in maker.inputs if isinstance(column, Raw)))

    def key(self, column: str) -> Categorify:
        """Returns the encoder of the user's or the item's key."""
        return next(operator for operator in self.operators if isinstance(operator, Categorify) and operator.column.name == column)

    def cardinalities(self) -> dict[str, int]:
        return {feature.name: feature.cardinality for feature in self.codes if feature.cardinality is not None}

    @property
    def ordered(self) -> tuple[Ordered, ...]:
        return tuple(operator for operator in self.operators if is_ordered(operator))

    @property
    def paged(self) -> bool:
        """True if an operator uses page views."""
        return any(operator.pages for operator in self.ordered)

    @property
    def folds(self) -> tuple[TargetEncode, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, TargetEncode))

    def raws(self, *tables: Table) -> tuple[Raw, ...]:
        """Returns the raw columns of the given tables; keys belong to the interactions."""
        columns: dict[str, Raw] = {}
        inputs = [column for operator in self.operators for column in operator.inputs]  # inputs first: after a fit they know their width
        counted = [column for operator in self.operators if (words := getattr(operator, "words", None)) for column in words.columns]
        for column in (*inputs, *counted):
            if isinstance(column, Raw) and (not tables or column.table in tables):
                before = columns.setdefault(column.name, column)
                if (before.kind, before.time, before.many) != (column.kind, column.time, column.many):
                    raise Invalid(f"features: '{column.name}' is used as {_type_name(before)} and as {_type_name(column)}: remove one use")
        return tuple(columns.values())

    def prepared(self, table: Table) -> list[pl.Expr]:
        """Returns the prepared columns of a table."""
        schema = self.tables.schema(table)
        return [
            column.prepared(schema[column.source or column.name]) for column in self.raws(table) if (column.source or column.name) in schema
        ]

    def fit(self, data: PreparedTables, previous: Graph | None = None, engine: Engine = compute) -> Graph:
        """Fits on prepared tables; grows `previous`, if given. Independent statistics are computed together."""
        fitted: dict[int, Operator] = {}
        made: dict[str, Feature] = {}
        for level in _levels(self.operators):
            asking = [at for at in level if self.operators[at].asks()]
            asks = [ask for at in asking for ask in self.operators[at].asks()]
            before = [fitted[at] for at in _makers(asking, self.operators)]
            results = engine(asks, _with(data, before)) if asks else {}
            for at in level:
                old: Any = previous.operators[at] if previous else None
                operator = fitted[at] = self.operators[at].fitted(results, old, made)
                made |= {feature.made: feature for feature in operator.features}
        return replace(self, operators=tuple(fitted[at] for at in range(len(self.operators))))

    def transform(
        self, frame: pl.LazyFrame, *sides: Side, mode: Mode = "serve", history: RowHistory | None = None, keep: Iterable[str | pl.Expr] = ()
    ) -> pl.LazyFrame:
        """Computes the features of some sides (default: all) under their own names. With `history`, rows get the values of earlier rows."""
        frame = _applied(frame, self.needed(*sides), mode, history)
        return frame.select(*keep, *(self.finished(feature) for feature in self.side(*(sides or ALL))))

    def finished(self, feature: Feature) -> pl.Expr:
        """Returns a feature for models: a missing number becomes 0, unless the family handles missing numbers."""
        value = pl.col(feature.made)
        if feature.kind == "float32" and feature.width is None:
            value = value.fill_null(float("nan")) if self.keeps_missing else value.fill_nan(0.0).fill_null(0.0)
        return value.alias(feature.name)

    @property
    def keeps_missing(self) -> bool:
        return self.reads == "trees"

    def as_served(self, read: Collection[str] | None, limit: int | None) -> Graph:
        """Returns the graph to serve. It takes the items of a request only if the model reads a sequence, and if the vocabulary of items is
        small enough for the graph. `read` has the names of the features that the model reads; None: all."""
        if self.reads in ("sequence", "sequence_and_items"):  # the family needs them
            return self
        cut = any(stored_input.operator is self.key(self.item) for stored_input in self.stored(limit))
        operators = tuple(
            replace(operator, session=None)
            if isinstance(operator, Sequence) and (cut or (read is not None and operator.features[0].name not in read))
            else operator
            for operator in self.operators
        )
        return replace(self, operators=operators)

    def read_as(self, reads: Reads) -> Graph:
        """Returns the part of a whole, unfitted graph that a family reads."""
        operators, left = read_by(self.operators, reads, (self.user, self.item))
        return replace(self, operators=operators, reads=reads, left=left)

    def needed(self, *sides: Side) -> list[Operator]:
        """Returns the operators for some sides, in order."""
        wanted = [at for at, operator in enumerate(self.operators) if {out.side for out in operator.outputs} <= set(sides or ALL)]
        return [self.operators[at] for at in sorted({*wanted, *_makers(wanted, self.operators)})]

    def table(self, frame: pl.LazyFrame, side: Side) -> pl.LazyFrame:
        """Returns the features of users or items by row; target means also as `NAME@folds`, computed without each fold."""
        makers = [operator for operator in self.folds if operator.outputs[0].side == side]
        for maker in makers:
            frame = maker.by_fold(frame)
        apart = [f"{out.name}@folds" for maker in makers for out in maker.outputs]
        made = self.transform(frame, side, keep=apart)
        return made.rename({name: name.removeprefix(output_name("")) for name in apart})

    def lower(self, limit: int | None = None, lists: Lists = "padded", recent: Raw | None = None) -> Any:
        """Returns the ONNX model from raw columns to features; with `recent`, also to the codes of these items of the user."""
        build = self.lowering(limit, lists)
        outputs = [(feature.output, feature.made, feature.kind, feature.width) for feature in self.features]
        if recent is None:
            return build.features_model(outputs)
        assert recent.width is not None
        _, number = build.take_shared(recent.name, recent.kind, recent.width)
        codes = build.node("Identity", self.key(self.item).state.lower(build, recent), output=output_name(RECENT))
        number = build.node("Identity", number, output=output_name(RECENT_LIST))
        return build.features_model(outputs, tensor_info(codes, "INT32", "L", recent.width), tensor_info(number, "INT64", "N"))

    def recent(self, width: int, limit: int | None = None) -> Raw | None:
        """Returns the input for `width` items that the user liked recently; None if the graph has not the codes of all items."""
        if not width or any(cut.operator is self.key(self.item) for cut in self.stored(limit)):
            return None
        return Raw(f"{self.item}_recent", "int64", "context", many=True, max_length=width, width=width)

    def lowering(self, limit: int | None = None, lists: Lists = "padded") -> Lowering:
        import numpy as np

        build = Lowering(lists)
        for key in (self.user, self.item):
            build.value(self.key(key).column)  # the unit takes both keys even if no operator reads them
        instead = self.stored(limit)
        for operator in self.operators:
            if stored_inputs := tuple(cut for cut in instead if cut.operator is operator):
                lower_stored(build, stored_inputs)
            else:
                operator.lower(build)
        for feature in () if self.keeps_missing else self.numbers:
            value = build.tensor(feature.made)
            build.gives(feature.made, build.node("Where", build.node("IsNaN", value), build.constant(np.array(0, np.float32)), value))
        return build

    def stored(self, limit: int | None = None) -> tuple[StoredInput, ...]:
        """Returns the served unit's inputs that replace tables of more than `limit` rows."""
        return stored(self.operators, limit)

    def describe(self) -> list[dict[str, Any]]:
        makers = {feature.name: operator for operator in self.operators for feature in operator.features}
        return [
            {
                "name": feature.name,
                "operator": makers[feature.name].kind,
                "of": list(self.sources(feature)),
                "side": feature.side,
                "kind": feature.kind,
                "width": feature.width,
                "cardinality": feature.cardinality,
            }
            for feature in self.features
        ]

    def save(self, folder: Path) -> dict[str, Path]:
        files: dict[str, Path] = {}
        facts = []
        for operator in self.operators:
            saved = operator.saved()
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
            "entries": [entry.model_dump(mode="json", by_alias=True) for entry in self.entries],
            "state": facts,
            "files": sorted(name for name in files if name != FEATURES),
        } | ({} if self.reads == "deep" else {"reads": self.reads})
        files[FEATURES].write_text(json.dumps(document, indent=1))
        return files

    def _needed(self, table: Table) -> pl.Schema:
        """Returns the used columns of a table, with keys and time. If the family reads only some entries, includes all columns that the
        entries name, so that the graph can be compiled again."""
        names = {column.source or column.name for column in self.raws(table)} | ({*self.row} if table == "interactions" else set())
        names |= {target for operator in self.folds for target in operator.targets} if table == "interactions" else set()
        if self.reads != "deep":
            names |= {name for entry in self.entries for name in mentioned(entry)}
        return pl.Schema({name: dtype for name, dtype in self.tables.schema(table).items() if name in names})


def compile_graph(entries: tuple[Any, ...], tables: Tables, reads: Reads = "deep") -> Graph:
    """Compiles all entries, to find faults in unused ones too, then drops what the family doesn't read."""
    graph = Graph(entries, tables, compile_operators(entries, tables))
    graph.raws()
    return graph.read_as(reads)


def load_graph(fetch: Callable[[str], Path]) -> Graph:
    """Reads a fitted graph; `fetch` returns the path of a published file."""
    document = json.loads(fetch(FEATURES).read_text())
    if document.get("version") != VERSION:
        raise Invalid(f"{FEATURES}: format {document.get('version')} is not the format {VERSION} of this release: start a full run")
    interactions, items, users = (read_schema(document["tables"][name]) for name in ("interactions", "items", "users"))
    tables = Tables(document["user"], document["item"], document["time"], interactions, items, users)
    reads = document.get("reads", "deep")
    if reads not in READS:
        raise Invalid(f"{FEATURES}: for families that read '{reads}', which this release does not have: start a full run")
    graph = compile_graph(_ENTRIES.validate_python(document["entries"]), tables, reads)
    frames = {name.removesuffix(".parquet"): pl.read_parquet(fetch(name)) for name in document["files"]}
    restored: list[Operator] = []
    made: dict[str, Feature] = {}
    for operator, facts in zip(graph.operators, document["state"], strict=True):
        restored.append(operator.restored(SavedState(facts, frames), made))
        made |= {feature.made: feature for feature in restored[-1].features}
    return replace(graph, operators=tuple(restored))


def check_same(graph: Graph, parent: Graph) -> None:
    """Raises Invalid if a warm run changes the parent's features: codes and tables would change their meaning."""
    ours, theirs = ([(column.name, column.kind, column.time, column.many) for column in which.raws()] for which in (graph, parent))
    if graph.entries != parent.entries or ours != theirs:
        raise Invalid("features: changed since the parent: a warm run cannot change them; start a full run")


def joined(data: Mapping[Table, pl.LazyFrame], graph: Graph) -> pl.LazyFrame:
    """Joins the interactions with the used columns of items and users; by `USER_ROW`, if present, instead of the user's key."""
    frame = data["interactions"]
    user = USER_ROW if USER_ROW in frame.collect_schema() else graph.user
    for table, key in (("items", graph.item), ("users", user)):
        if table in data and (columns := [column.name for column in graph.raws(table)]):  # type: ignore[arg-type]
            frame = frame.join(data[table].select(key, *columns), on=key, how="left", maintain_order="left")  # type: ignore[index]
    return frame


def _levels(operators: tuple[Operator, ...]) -> list[list[int]]:
    """Groups operators by dependency of their fits."""
    maker = {out.name: at for at, operator in enumerate(operators) for out in operator.outputs}
    depth: list[int] = []
    for operator in operators:
        before = [depth[maker[column.name]] + (1 if operator.asks() else 0) for column in operator.inputs if column.name in maker]
        depth.append(max(before, default=0))
    return [[at for at, operator_depth in enumerate(depth) if operator_depth == level] for level in range(max(depth, default=-1) + 1)]


def _makers(level: list[int], operators: tuple[Operator, ...]) -> list[int]:
    """Returns, in order, the operators that directly or indirectly make the inputs of the given operators."""
    maker = {out.name: at for at, operator in enumerate(operators) for out in operator.outputs}
    wanted: set[int] = set()
    front = list(level)
    while front:
        made = {maker[column.name] for column in operators[front.pop()].inputs if column.name in maker} - wanted
        wanted |= made
        front += made
    return sorted(wanted)


def _with(data: PreparedTables, operators: list[Operator]) -> PreparedTables:
    """Adds the operators' outputs to the tables."""
    rows = _applied(data.interactions, operators, "rows", data.history)
    return replace(data, interactions=rows, items=_of(data.items, operators, "item"), users=_of(data.users, operators, "user"))


def _applied(frame: pl.LazyFrame, operators: Iterable[Operator], mode: Mode, history: RowHistory | None) -> pl.LazyFrame:
    """Applies operators. With `history`, ordered operators see the rows before each row in every mode."""
    for operator in operators:
        frame = (
            operator.apply(history.added(frame, operator), "rows")
            if history is not None and is_ordered(operator)
            else operator.apply(frame, mode)
        )
    return frame


def _of(frame: pl.LazyFrame | None, operators: Iterable[Operator], side: Side) -> pl.LazyFrame | None:
    if frame is None:
        return None
    names = set(frame.collect_schema().names())
    for operator in operators:
        if all(out.side == side for out in operator.outputs) and all(column.name in names for column in operator.inputs):
            frame = operator.apply(frame, "serve")
            names |= {out.name for out in operator.outputs}
    return frame


def _type_name(column: Raw) -> str:
    return "a time" if column.time else "a list" if column.many else {"int64": "an integer", "string": "text"}.get(column.kind, "a number")
