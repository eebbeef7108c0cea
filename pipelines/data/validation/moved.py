"""Drift of a column's values: equal bins of two batches and a stability index."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from pipelines.data.validation.figures import check
from pipelines.data.validation.values import Categories, Column, NumberSummary, counted, named
from shared.contracts.validation import CheckLimits
from shared.contracts.validation_report import Bar, Check, Distribution
from shared.domain.soundness import stability_index


@dataclass(frozen=True)
class SharedBins:
    """Equal bins of two batches."""

    names: tuple[str, ...]
    before: tuple[int, ...]
    now: tuple[int, ...]

    @property
    def index(self) -> float:
        return stability_index(self.before, self.now)

    def bars(self) -> tuple[Bar, ...]:
        rows = zip(self.names, self.now, self.before, strict=True)
        return tuple(Bar(name=name, now=now, before=before) for name, now, before in rows if now or before)


def bars_of(column: Column) -> tuple[Bar, ...]:
    """Returns bars of a column without a comparison."""
    names, counts = _binned(column)
    return tuple(Bar(name=name, now=count) for name, count in zip(names, counts, strict=True) if count)


def moved(kind: str, subject: str, column: str, bins: SharedBins, drift: CheckLimits) -> tuple[Check, Distribution]:
    index = bins.index
    change = "have changed" if index > (drift.warn or 0.1) else "have not changed"
    made = check(kind, column, index, drift, f"{subject} {change}: stability index {index:.3f}")
    return made.model_copy(update={"unit": "index"}), Distribution(column=f"{column}: {subject}", bars=bins.bars())


def column_moved(
    frame: pl.LazyFrame, column: str, before: Column, now: Column | None, rows: int, drift: CheckLimits
) -> Iterator[tuple[Check, Distribution | None]]:
    """Compares a column with its earlier profile. `now`: profile in the frame, which has `rows` rows."""
    if now is None or now.kind != before.kind:
        change = "is missing; the last accepted batch has it" if now is None else f"holds {now.kind}; before: {before.kind}"
        gone = CheckLimits(warn=0.0, stop=drift.stop)
        yield check("drift", column, 1.0, gone, f"column '{column}' {change}"), None
        return
    names, then = _binned(before)
    if isinstance(before, NumberSummary):
        counts = (*counted(frame, column, before.edges), now.nulls)
    else:
        again = named(frame, column, tuple(value for value, _ in before.top))
        top_counts = tuple(again.get(value, 0) for value, _ in before.top)
        counts = (*top_counts, rows - now.nulls - sum(top_counts), now.nulls)
    yield moved("drift", f"values of '{column}'", column, SharedBins(names, then, counts), drift)


def _binned(column: Column) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if isinstance(column, Categories):
        names: Mapping[str, int] = dict(column.top)
        return (*names, "other", "null"), (*names.values(), column.other, column.nulls)
    edges = ["-inf", *(f"{edge:.10g}" for edge in column.edges), "inf"]
    return (*(_between(low, high) for low, high in itertools.pairwise(edges)), "null"), (*column.counts, column.nulls)


def _between(low: str, high: str) -> str:
    if low == "-inf":
        return "all" if high == "inf" else f"up to {high}"
    return f"above {low}" if high == "inf" else f"{low} to {high}"
