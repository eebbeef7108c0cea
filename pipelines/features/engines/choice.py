"""Selects the spec's engine for statistics and row features. Engines give equal results and differ in speed and hardware.

Either engine uses polars and numpy for the small tables of users and items, and for histories.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from pipelines.features.columns import Side
from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.polars import PreparedTables, compute
from pipelines.features.engines.queries import CPU, GpuQueries, Queries, open_queries
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Mode
from pipelines.features.statistics import Results, Statistic
from shared.contracts.resources import EtlResources
from shared.domain.errors import Invalid


class Engine(Protocol):
    @property
    def queries(self) -> Queries: ...

    def compute(self, asks: Sequence[Statistic], data: PreparedTables) -> Results: ...

    def transform(
        self,
        graph: Graph,
        frame: pl.LazyFrame,
        *sides: Side,
        mode: Mode = "serve",
        history: RowHistory | None = None,
        keep: Iterable[str | pl.Expr] = (),
    ) -> pl.LazyFrame:
        """Same contract as `Graph.transform`."""


@dataclass(frozen=True)
class PolarsEngine:
    queries: Queries = CPU

    def compute(self, asks: Sequence[Statistic], data: PreparedTables) -> Results:
        return compute(asks, data, self.queries)

    def transform(self, graph: Graph, frame: pl.LazyFrame, *sides: Side, **options: Any) -> pl.LazyFrame:
        return graph.transform(frame, *sides, **options)


@contextmanager
def engine(resources: EtlResources, folder: Path, log: logging.Logger, has_gpu: bool = False) -> Iterator[Engine]:
    """Opens the engine that a spec chooses; its results can be read while the context is open. `folder`: for its own files."""
    name = resources.engine
    if name == "polars":
        queries = open_queries(resources.gpu or 0, has_gpu, log)
        try:
            yield PolarsEngine(queries)
        finally:
            if isinstance(queries, GpuQueries):
                queries.end_several()
        if isinstance(queries, GpuQueries):
            queries.close()
        return
    try:
        from pipelines.features.engines.nvtabular.engine import NvtabularEngine
        from pipelines.features.engines.nvtabular.session import session
    except ImportError as error:
        raise Invalid(f"resources.etl.engine: the environment of {name} is missing ({error}): run 'make setup-{name}'") from None
    with session(folder) as opened_session:
        yield NvtabularEngine(opened_session)
