"""Selects the spec's engine for statistics and row features. Engines give equal results and differ in speed and hardware.

Either engine uses polars and numpy for the small tables of users and items, and for histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from pipelines.features.columns import Side
from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.polars import PreparedTables, compute
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Mode
from pipelines.features.statistics import Results, Statistic
from shared.domain.errors import Invalid


class Engine(Protocol):
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


class PolarsEngine:
    def compute(self, asks: Sequence[Statistic], data: PreparedTables) -> Results:
        return compute(asks, data)

    def transform(self, graph: Graph, frame: pl.LazyFrame, *sides: Side, **options: Any) -> pl.LazyFrame:
        return graph.transform(frame, *sides, **options)


@contextmanager
def engine(name: str, folder: Path) -> Iterator[Engine]:
    """Opens an engine; its results can be read while the context is open. `folder`: for its own files."""
    if name == "polars":
        yield PolarsEngine()
        return
    try:
        from pipelines.features.engines.nvtabular.engine import NvtabularEngine
        from pipelines.features.engines.nvtabular.session import session
    except ImportError as error:
        raise Invalid(f"resources.etl.engine: the environment of {name} is missing ({error}): run 'make setup-{name}'") from None
    with session(folder) as opened_session:
        yield NvtabularEngine(opened_session)
