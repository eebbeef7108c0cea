"""Given image or text vectors: Parquet with a key and a column of number lists, joined to the key's table."""

from __future__ import annotations

import polars as pl

from pipelines.data.ids import keyed
from pipelines.data.sources import ReadableRoots, SourceRows, open_source, readable
from pipelines.data.validate import check_table
from shared.contracts.features import VectorOf
from shared.contracts.sources import Place
from shared.domain.entity_ids import IdKind
from shared.domain.errors import BadData


def open_vectors(of: VectorOf, reach: ReadableRoots, kind: IdKind | None = None) -> SourceRows:
    source = keyed(open_source(Place(uri=of.source), reach, (of.of, of.column)), of.of, kind, reach.ids)
    check_table(source, of.of)
    dtype = source.frame.collect_schema()[of.column]
    if not isinstance(dtype, pl.List | pl.Array):
        raise BadData(f"{source.name}: column '{of.column}' is {dtype}; vectors must be lists of numbers")
    with readable(source.name):
        lengths = source.frame.select(pl.col(of.column).cast(pl.List(pl.Float32)).list.len().drop_nulls().unique()).collect(
            engine="streaming"
        )
    widths = sorted(lengths.to_series())
    if widths != [of.width]:
        raise BadData(
            f"{source.name}: column '{of.column}' has vectors of length {', '.join(map(str, widths[:5]))}; the spec says {of.width}"
        )
    return source


def with_vectors(table: pl.DataFrame, source: SourceRows, of: VectorOf) -> pl.DataFrame:
    vectors = source.frame.select(pl.col(of.of).cast(pl.Int64), pl.col(of.column).cast(pl.List(pl.Float32)).alias(of.output))
    with readable(source.name):
        return table.drop(of.output, strict=False).join(vectors.collect(), on=of.of, how="left", maintain_order="left")
