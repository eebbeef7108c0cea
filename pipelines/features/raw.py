"""Raw columns as the served unit takes them: int64 or text, one value a row or a padded list of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.graph import Graph, codes_name
from pipelines.features.vocabulary import BLANK, DType, polars_type
from shared.contracts.serving import Serve
from shared.domain.errors import Invalid
from shared.serving.signature import Feature, Input, Signature


def signature(graph: Graph, serve: Serve | None = None) -> Signature:
    """`serve`: how it is to be served, where that is of interest."""
    serve = serve or Serve()
    inputs = tuple(Input(name=one.column, dtype=one.dtype, width=one.length, side=one.side) for one in graph.features)
    features = tuple(Feature(column=one.column, output=codes_name(one.column), width=one.length) for one in graph.features)
    return Signature(user=graph.user, item=graph.item, inputs=inputs, features=features, instances=serve.instances, warm_up=serve.warm_up)


def item_columns(items: pl.DataFrame, served: Signature) -> dict[str, NDArray[Any]]:
    """The catalogue's raw columns that a served unit asks for; text is fixed-width unicode, so no array holds objects."""
    return {one.name: raw_column(items, one) for one in served.side("item")}


def raw_column(items: pl.DataFrame, wanted: Input) -> NDArray[Any]:
    if wanted.dtype == "float32" or wanted.name not in items.columns:
        raise Invalid(f"the items table has no column '{wanted.name}' of {wanted.dtype}")
    column, dtype = items[wanted.name], wanted.dtype
    has_lists = isinstance(column.dtype, pl.List)
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if has_lists != (wanted.width is not None) or (inner == pl.String) != (dtype == "string"):
        raise Invalid(f"the items table's column '{wanted.name}' is {column.dtype}, not {dtype} as it was")
    if wanted.width is not None:
        padding = pl.lit([BLANK[dtype]] * wanted.width, dtype=pl.List(polars_type(dtype)))
        padded = pl.concat_list(pl.col(wanted.name), padding).list.head(wanted.width)
        column = items.select(padded.explode()).to_series()
    flat = _array(column.fill_null(BLANK[dtype]), dtype)
    return flat if wanted.width is None else flat.reshape(len(items), wanted.width)


def _array(column: pl.Series, dtype: DType) -> NDArray[Any]:
    return column.to_numpy() if dtype == "int64" else np.array(column.to_list(), dtype=np.str_)
