"""Explanation of a spec's features: graph, features, embedding tables with sizes, and inputs of the served unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelines.explain.fitting import ExplainedFit
from pipelines.explain.sizes import Embedding, embeddings
from pipelines.explain.spec_sizes import SpecSizes, spec_sizes
from pipelines.features.columns import Column, Raw
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Feature, Operator, plain
from pipelines.features.raw import signature
from pipelines.features.stored import STORED
from pipelines.models.neural.train import NEGATIVES
from pipelines.models.sequence_session import read_sequence
from pipelines.models.session import sequences_at_once
from pipelines.models.tables import PRECISION
from pipelines.training.batch_size import BatchSize, batch_size
from pipelines.training.negatives import LabelCounts
from shared.contracts.explanation import (
    DataCounts,
    Explanation,
    FeatureExplained,
    InputExplained,
    LeftOut,
    Node,
    OperatorExplained,
    Runtime,
    TableExplained,
    Totals,
)
from shared.contracts.families import Params, SessionParams, TwoTowerParams
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec

RUNTIMES: tuple[Runtime, ...] = ("polars", "nvtabular", "onnx")
"""Runtimes to which every operator lowers."""


def explained(spec: RecommenderSpec, fitted: ExplainedFit, family: str | None = None) -> Explanation:
    """`family` may be another family, with its defaults, or a reading mode, which has no tables."""
    graph, sizes, family = fitted.graph, spec_sizes(fitted.graph), family or spec.model.family
    tables = embeddings(fitted, _params(spec, family))
    counts = DataCounts(rows=fitted.rows, items=fitted.items, users=fitted.users, one_user_in=fitted.every)
    return Explanation(
        recommender=spec.name,
        family=family,
        reads=graph.reads,
        data=counts if fitted.knows_data else None,
        nodes=tuple(_nodes(graph)),
        operators=tuple(_operator(operator) for operator in graph.operators),
        features=tuple(_feature(feature, fitted, sizes[feature.name], tables) for feature in graph.features),
        tables=tuple(_table(table) for table in tables),
        totals=_totals(_batch_size(spec, fitted, _params(spec, family), tables), tables),
        inputs=tuple(_inputs(spec, fitted, sizes)),
        left_out=tuple(LeftOut(operator=omission.operator, feature=omission.feature, why=omission.why) for omission in graph.left),
        warnings=tuple(f"{field}: {message}; only the catalogue can have it" for field, message in fitted.unknown),
    )


def _params(spec: RecommenderSpec, family: str) -> Params | None:
    if family == spec.model.family:
        return spec.model.params
    return Model(family=family).params if family in Model.FAMILIES else None


def _nodes(graph: Graph) -> Iterator[Node]:
    for raw in graph.raws():
        yield Node(id=raw.name, name=raw.name, side=raw.side, table=raw.table, by="extract" if raw.pattern else None)
    made = {feature.made for feature in graph.features}
    for operator in graph.operators:
        of = tuple(column.name for column in operator.inputs)
        for out in operator.outputs:
            yield Node(id=out.name, name=plain(out), side=out.side, by=operator.kind, of=of, feature=out.name in made)


def _operator(operator: Operator) -> OperatorExplained:
    return OperatorExplained(
        operator=operator.kind,
        of=tuple(plain(column) for column in operator.inputs),
        makes=tuple(plain(column) for column in operator.outputs),
        side=operator.outputs[0].side,
        fitted=bool(operator.asks()),
        files=tuple(sorted(f"{name}.parquet" for name in operator.saved().frames)),
        runtimes=RUNTIMES,
    )


def _feature(feature: Feature, fitted: ExplainedFit, sizes: SpecSizes, tables: tuple[Embedding, ...]) -> FeatureExplained:
    graph, sees = fitted.graph, fitted.knows_data
    column, maker = next((out, operator) for operator in graph.operators for out in operator.outputs if out.name == feature.made)
    return FeatureExplained(
        name=feature.name,
        side=feature.side,
        kind=feature.kind,
        several=feature.width is not None,
        width=feature.width if sees else sizes.width,
        width_at_most=sizes.most,
        cardinality=feature.cardinality if sees else sizes.codes,
        embedding=next((table.width for table in tables if table.feature == feature.name), None),
        operator=maker.kind,
        made=_formula(column, graph),
        columns=graph.sources(feature),
        runtimes=RUNTIMES,
    )


def _formula(column: Column, graph: Graph) -> str:
    if isinstance(column, Raw):
        return f"extract({column.source})" if column.pattern else column.name
    maker = next(operator for operator in graph.operators if column in operator.outputs)
    return f"{maker.kind}({', '.join(_formula(source, graph) for source in maker.inputs)})"


def _table(table: Embedding) -> TableExplained:
    return TableExplained(
        feature=table.feature,
        codes=table.codes,
        width=table.width,
        bytes=table.size,
        values_per_row=table.values,
        bytes_per_row=table.lookup,
        padded_width=table.aligned,
    )


def _batch_size(spec: RecommenderSpec, fitted: ExplainedFit, params: Params | None, tables: tuple[Embedding, ...]) -> BatchSize:
    """Estimates the batch size of the training."""
    if isinstance(params, SessionParams):
        sequence = read_sequence(fitted.graph, params)
        read = params if sequence is None else params.model_copy(update={"length": sequence.length})
        return sequences_at_once(spec.model.train.batch_size, read)
    layers = getattr(params, "layers", ())
    table_widths = [table.width for table in tables]
    numbers = sum(feature.width or 1 for feature in fitted.graph.numbers)
    widths = (sum(table_widths) + numbers, *layers, 1) if layers and None not in table_widths else (*layers, 1) if layers else ()  # type: ignore[arg-type]
    in_batch = isinstance(params, TwoTowerParams)
    each = fitted.positives if in_batch else fitted.rows + fitted.positives * _negatives(params, fitted, spec.ranks_catalogue)
    rows = int(each * fitted.every * (1 - spec.model.train.validation)) if fitted.knows_data else None
    return batch_size(spec.model.train.batch_size, widths, sum(table.values or 1.0 for table in tables), rows, in_batch)


def _negatives(params: object, fitted: ExplainedFit, ranked: bool) -> int:
    chosen: int | None = getattr(params, "negatives", 0)
    return LabelCounts(fitted.rows, fitted.positives).negatives(chosen, NEGATIVES, ranked)


def _totals(batch: BatchSize, tables: tuple[Embedding, ...]) -> Totals:
    size, a_row = _sum(table.size for table in tables), _sum(table.lookup for table in tables)
    padded = _sum(None if table.codes is None or table.aligned is None else table.codes * table.aligned * PRECISION for table in tables)
    return Totals(
        bytes=None if size is None else int(size),
        bytes_per_row=a_row,
        batch_size=batch.size,
        batch_size_why=batch.why,
        bytes_per_batch=None if a_row is None else a_row * batch.size,
        padded_bytes=None if padded is None else int(padded),
    )


def _sum(parts: Iterable[float | None]) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def _inputs(spec: RecommenderSpec, fitted: ExplainedFit, sizes: Mapping[str, SpecSizes]) -> Iterator[InputExplained]:
    graph = fitted.graph
    made = {feature.name: graph.sources(feature) for feature in graph.features}
    for column in signature(graph, spec.serve).inputs:
        features = tuple(name for name, of in made.items() if column.name in (*of, name + STORED))
        lengths = [most for name in features if (most := sizes[name].most) is not None]
        fields = {
            "name": column.name,
            "dtype": column.dtype,
            "several": column.width is not None,
            "width": column.width if fitted.knows_data else None,
            "width_at_most": max(lengths, default=None) if column.width is not None else None,
            "side": column.side,
            "from": column.origin,
            "view": column.view,
            "features": features,
        }
        yield InputExplained.model_validate(fields)
