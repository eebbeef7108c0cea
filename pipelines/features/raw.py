"""Raw columns for the served unit: int64, text or float32, one value or a padded list per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import Raw, polars_type
from pipelines.features.graph import Graph
from pipelines.features.operators import base as features
from pipelines.features.operators.sequence import Sequence
from pipelines.features.stored import StoredInput
from shared.contracts.serving import Lists, Serve
from shared.domain.errors import Invalid
from shared.serving.signature import BLANK, OFFSETS, VALUES, Feature, Input, Signature

VIEW = "users"
"""Feature store view of users' values."""
FITTED = "fitted"
"""Feature store view of a version's fitted values, which replace tables too large for its graph."""


def inputs(graph: Graph, limit: int | None = None) -> tuple[Raw, ...]:
    """Returns the raw columns of the served graph, the keys first."""
    names = graph.lowering(limit).taken
    return tuple(
        sorted((column for column in graph.raws() if column.name in names), key=lambda column: column.name not in (graph.user, graph.item))
    )


def signature(graph: Graph, serve: Serve | None = None, recent: Raw | None = None, learned_until: float | None = None) -> Signature:
    """Returns the signature of the served unit; `serve`: the spec's serving options, defaults if absent; `recent`: the input of recent
    items, if the model has one."""
    serve = serve or Serve()
    check_lists(graph, serve.lists)
    limit = serve.vocabulary_limit
    columns = inputs(graph, limit)
    features = tuple(
        Feature(
            column=feature.name,
            output=feature.output,
            dtype=_TYPES[feature.kind],
            width=feature.width,
            of=graph.sources(feature),
            missing=_may_miss(graph, feature),
        )
        for feature in graph.features
    )
    session = next(
        (operator.session.name for operator in graph.operators if isinstance(operator, Sequence) and operator.session is not None),
        recent.name if recent is not None else None,
    )
    return Signature(
        user=graph.user,
        item=graph.item,
        time=next((column.name for column in columns if column.name == graph.tables.time), None),
        session=session,
        learned_until=None if session is None else learned_until,
        inputs=(
            *(_input(column, graph, serve.lists) for column in columns),
            *(_stored(stored_input, serve.lists) for stored_input in graph.stored(limit)),
            *([Input(name=recent.name, dtype="int64", width=recent.width, lists="shared", side="context")] if recent is not None else []),
        ),
        features=features,
        instances=serve.instances,
        warm_up=serve.warm_up,
    )


def check_lists(graph: Graph, lists: Lists) -> None:
    """Raises Invalid if a column has the name of one of the two tensors for another column's lists."""
    raws = graph.raws()
    names = {column.name for column in raws} if lists == "offsets" else set()
    for column in raws:
        if column.many and (clashes := [column.name + end for end in (VALUES, OFFSETS) if column.name + end in names]):
            raise Invalid(
                f"serve.lists: 'offsets' makes the input '{clashes[0]}' from '{column.name}', but a column has that name: rename the"
                " column, or leave lists padded"
            )


def _may_miss(graph: Graph, feature: features.Feature) -> bool:
    return graph.keeps_missing and feature.kind == "float32" and feature.width is None


_TYPES: dict[str, Any] = {"code": "int32", "float32": "float32"}


def _input(column: Raw, graph: Graph, lists: Lists) -> Input:
    stored = column.side == "user" and column.name != graph.user
    return Input.model_validate(
        {"name": column.name, "dtype": column.kind, "width": column.width, "side": column.side}
        | _layout(column.width, lists)
        | ({"source": "store", "view": VIEW} if stored else {})
    )


def _stored(stored_input: StoredInput, lists: Lists) -> Input:
    """Returns an input whose values only this version's tables define."""
    of_user = {"source": "store", "view": FITTED} if stored_input.side == "user" else {}
    fields = {"name": stored_input.name, "dtype": stored_input.kind, "width": stored_input.width, "side": stored_input.side}
    return Input.model_validate(fields | _layout(stored_input.width, lists) | of_user)


def _layout(width: int | None, lists: Lists) -> dict[str, Any]:
    return {} if width is None else {"lists": lists}


def item_columns(items: pl.DataFrame, served: Signature) -> dict[str, NDArray[Any]]:
    """Returns the catalogue's raw columns for a served unit; text is fixed-width unicode, so arrays hold no objects."""
    return {column.name: raw_column(items, column, "the items table") for column in served.side("item")}


def raw_column(table: pl.DataFrame, wanted: Input, name: str) -> NDArray[Any]:
    if wanted.name not in table.columns:
        raise Invalid(f"{name} has no column '{wanted.name}' of {wanted.dtype}")
    column, dtype = table[wanted.name], wanted.dtype
    has_lists = isinstance(column.dtype, pl.List)
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if has_lists != (wanted.width is not None) or inner != polars_type(dtype):
        raise Invalid(f"{name}: column '{wanted.name}' is {column.dtype}, but was {dtype}")
    if wanted.width is not None:
        padding = pl.lit([BLANK[dtype]] * wanted.width, dtype=pl.List(polars_type(dtype)))
        padded = pl.concat_list(pl.col(wanted.name).fill_null([]), padding).list.head(wanted.width)
        column = table.select(padded.explode(empty_as_null=False)).to_series()
    flat = _array(column.fill_null(BLANK[dtype]), dtype)
    return flat if wanted.width is None else flat.reshape(len(table), wanted.width)


def _array(column: pl.Series, dtype: str) -> NDArray[Any]:
    return np.array(column.to_list(), dtype=np.str_) if dtype == "string" else column.to_numpy()
