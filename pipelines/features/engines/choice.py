"""What computes statistics and the features of rows, by its name in the spec. Both do the same: the choice is one of speed and machines.

The tables of users and items, which are small, and what came before a row are worked out by polars and numpy in either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import polars as pl

from pipelines.features.columns import Side
from pipelines.features.engines.history import History
from pipelines.features.engines.polars import Data, compute
from pipelines.features.graph import Graph
from pipelines.features.operators.base import Mode
from pipelines.features.statistics import Results, Statistic
from shared.domain.errors import Invalid


class Engine(Protocol):
    def compute(self, asks: Sequence[Statistic], data: Data) -> Results: ...

    def transform(
        self,
        graph: Graph,
        frame: pl.LazyFrame,
        *sides: Side,
        mode: Mode = "serve",
        history: History | None = None,
        keep: Iterable[str | pl.Expr] = (),
    ) -> pl.LazyFrame:
        """As `Graph.transform`."""


class PolarsEngine:
    def compute(self, asks: Sequence[Statistic], data: Data) -> Results:
        return compute(asks, data)

    def transform(
        self,
        graph: Graph,
        frame: pl.LazyFrame,
        *sides: Side,
        mode: Mode = "serve",
        history: History | None = None,
        keep: Iterable[str | pl.Expr] = (),
    ) -> pl.LazyFrame:
        return graph.transform(frame, *sides, mode=mode, history=history, keep=keep)


@contextmanager
def engine(name: str, folder: Path) -> Iterator[Engine]:
    """While it is open, what it made can be read; `folder` is for its own files."""
    if name == "polars":
        yield PolarsEngine()
        return
    try:
        from pipelines.features.engines.nvtabular.engine import NvtabularEngine
        from pipelines.features.engines.nvtabular.session import session
    except ImportError as error:
        raise Invalid(f"resources.etl.engine: {name}: its environment is missing ({error}): make setup-{name}") from None
    with session(folder) as opened_session:
        yield NvtabularEngine(opened_session)
