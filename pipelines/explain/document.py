"""What a spec's features are: the graph, what models get, tables and their sizes, and what the served unit asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.explain.fitting import Fitted
from pipelines.explain.given import Given, given
from pipelines.explain.sizes import Embedding, embeddings
from pipelines.features.columns import Column, Raw
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature, Operator, plain
from pipelines.features.raw import signature
from pipelines.features.stored import STORED
from pipelines.models.reader import read_sequence
from pipelines.models.session import sequences_at_once
from pipelines.models.tables import PRECISION
from pipelines.training.batch_size import BatchSize, batch_size
from shared.contracts.explanation import (
    Explanation,
    FeatureExplained,
    InputExplained,
    LeftOut,
    Node,
    OperatorExplained,
    Runtime,
    Seen,
    TableExplained,
    Totals,
)
from shared.contracts.families import Params, SessionParams, TwoTowerParams
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec

RUNTIMES: tuple[Runtime, ...] = ("polars", "nvtabular", "onnx")
"""That every operator has a lowering to."""


def explained(spec: RecommenderSpec, fitted: Fitted, family: str | None = None) -> Explanation:
    """`family`: of another one than the spec's, with its own defaults; or a way to read, which looks up nothing."""
    graph, known, family = fitted.graph, given(fitted.graph), family or spec.model.family
    tables = embeddings(fitted, _params(spec, family))
    seen = Seen(rows=fitted.rows, items=fitted.items, users=fitted.users, one_user_in=fitted.every)
    return Explanation(
        recommender=spec.name,
        family=family,
        reads=graph.reads,
        data=seen if fitted.knows_data else None,
        nodes=tuple(_nodes(graph)),
        operators=tuple(_operator(one) for one in graph.operators),
        features=tuple(_feature(one, fitted, known[one.name], tables) for one in graph.features),
        tables=tuple(_table(one) for one in tables),
        totals=_totals(_batch_size(spec, fitted, _params(spec, family), tables), tables),
        inputs=tuple(_inputs(spec, fitted, known)),
        left_out=tuple(LeftOut(operator=one.operator, feature=one.feature, why=one.why) for one in graph.left),
    )


def _params(spec: RecommenderSpec, family: str) -> Params | None:
    if family == spec.model.family:
        return spec.model.params
    return Model(family=family).params if family in Model.FAMILIES else None


def _nodes(graph: Graph) -> Iterator[Node]:
    for raw in graph.raws():
        yield Node(id=raw.name, name=raw.name, side=raw.side, table=raw.table, by="extract" if raw.pattern else None)
    made = {one.made for one in graph.features}
    for operator in graph.operators:
        of = tuple(one.name for one in operator.inputs)
        for out in operator.outputs:
            yield Node(id=out.name, name=plain(out), side=out.side, by=operator.kind, of=of, feature=out.name in made)


def _operator(operator: Operator) -> OperatorExplained:
    return OperatorExplained(
        operator=operator.kind,
        of=tuple(plain(one) for one in operator.inputs),
        makes=tuple(plain(one) for one in operator.outputs),
        side=operator.outputs[0].side,
        fitted=bool(operator.asks()),
        files=tuple(sorted(f"{name}.parquet" for name in operator.saved().frames)),
        runtimes=RUNTIMES,
    )


def _feature(feature: Feature, fitted: Fitted, known: Given, tables: tuple[Embedding, ...]) -> FeatureExplained:
    graph, sees = fitted.graph, fitted.knows_data
    column, maker = next((out, one) for one in graph.operators for out in one.outputs if out.name == feature.made)
    return FeatureExplained(
        name=feature.name,
        side=feature.side,
        kind=feature.kind,
        several=feature.width is not None,
        width=feature.width if sees else known.width,
        width_at_most=known.most,
        cardinality=feature.cardinality if sees else known.codes,
        embedding=next((one.width for one in tables if one.feature == feature.name), None),
        operator=maker.kind,
        made=_formula(column, graph),
        columns=graph.sources(feature),
        runtimes=RUNTIMES,
    )


def _formula(column: Column, graph: Graph) -> str:
    if isinstance(column, Raw):
        return f"extract({column.source})" if column.pattern else column.name
    maker = next(one for one in graph.operators if column in one.outputs)
    return f"{maker.kind}({', '.join(_formula(one, graph) for one in maker.inputs)})"


def _table(one: Embedding) -> TableExplained:
    return TableExplained(
        feature=one.feature,
        codes=one.codes,
        width=one.width,
        bytes=one.size,
        values_per_row=one.values,
        bytes_per_row=one.lookup,
        padded_width=one.aligned,
    )


def _batch_size(spec: RecommenderSpec, fitted: Fitted, params: Params | None, tables: tuple[Embedding, ...]) -> BatchSize:
    """As training chooses it, as far as that is known by now."""
    if isinstance(params, SessionParams):
        items = next(one.codes for one in tables if one.feature == fitted.graph.item)
        sequence = read_sequence(fitted.graph, params)
        read = params if sequence is None else params.model_copy(update={"length": sequence.length})
        return sequences_at_once(spec.model.train.batch_size, read, items)
    layers = getattr(params, "layers", ())
    given = [one.width for one in tables]
    numbers = sum(one.width or 1 for one in fitted.graph.numbers)
    widths = (sum(given) + numbers, *layers, 1) if layers and None not in given else (*layers, 1) if layers else ()  # type: ignore[arg-type]
    in_batch = isinstance(params, TwoTowerParams)
    each = fitted.positives if in_batch else fitted.rows + fitted.positives * getattr(params, "negatives", 0)
    rows = int(each * fitted.every * (1 - spec.model.train.validation)) if fitted.knows_data else None
    return batch_size(spec.model.train.batch_size, widths, sum(one.values or 1.0 for one in tables), rows, in_batch)


def _totals(batch: BatchSize, tables: tuple[Embedding, ...]) -> Totals:
    size, a_row = _sum(one.size for one in tables), _sum(one.lookup for one in tables)
    padded = _sum(None if one.codes is None or one.aligned is None else one.codes * one.aligned * PRECISION for one in tables)
    return Totals(
        bytes=None if size is None else int(size),
        bytes_per_row=a_row,
        batch_size=batch.size,
        batch_size_why=batch.why,
        bytes_per_batch=None if a_row is None else a_row * batch.size,
        padded_bytes=None if padded is None else int(padded),
    )


def _sum(parts: Iterable[float | None]) -> float | None:
    found = 0.0
    for one in parts:
        if one is None:
            return None
        found += one
    return found


def _inputs(spec: RecommenderSpec, fitted: Fitted, known: Mapping[str, Given]) -> Iterator[InputExplained]:
    graph = fitted.graph
    made = {one.name: graph.sources(one) for one in graph.features}
    for one in signature(graph, spec.serve).inputs:
        features = tuple(name for name, of in made.items() if one.name in (*of, name + STORED))
        lengths = [most for name in features if (most := known[name].most) is not None]
        told = {
            "name": one.name,
            "dtype": one.dtype,
            "several": one.width is not None,
            "width": one.width if fitted.knows_data else None,
            "width_at_most": max(lengths, default=None) if one.width is not None else None,
            "side": one.side,
            "from": one.origin,
            "view": one.view,
            "features": features,
        }
        yield InputExplained.model_validate(told)
