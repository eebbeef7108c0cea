"""A batch beside the last accepted one: what has moved, what is new, and what has come apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from pipelines.data.validation.columns import Columns
from pipelines.data.validation.figures import check, percent
from pipelines.data.validation.keys import sampled
from pipelines.data.validation.profile import Categories, Numbers, Profile, counted, named
from shared.contracts.validation import Limits, Validate
from shared.contracts.validation_report import Bar, Check, Distribution
from shared.domain.soundness import lost, stability_index

FEWEST_ROWS = 1000
"""Of fewer rows chance says as much about ties as the data does."""
_MOST_DISORDER = Limits(warn=0.1)


@dataclass(frozen=True)
class Bins:
    """The same bins of two batches."""

    names: tuple[str, ...]
    before: tuple[int, ...]
    now: tuple[int, ...]

    @property
    def index(self) -> float:
        return stability_index(self.before, self.now)

    def bars(self) -> tuple[Bar, ...]:
        rows = zip(self.names, self.now, self.before, strict=True)
        return tuple(Bar(name=name, now=now, before=before) for name, now, before in rows if now or before)


def compare(
    frame: pl.LazyFrame, found: Profile, accepted: Profile, columns: Columns, wish: Validate
) -> Iterator[tuple[Check, Distribution | None]]:
    yield _newer(found, accepted, columns), None
    disorder = max(0.0, found.disorder - accepted.disorder)
    order = f"{percent(found.disorder)} of the rows are older than the row before them; it was {percent(accepted.disorder)}"
    yield check("order", columns.time, disorder, _MOST_DISORDER, order), None
    for name, key in zip(("user", "item"), columns.keys, strict=True):
        if name in accepted.keys:
            yield _unseen(frame, name, key, accepted, wish), None
            yield _moved("activity", f"rows of one {name}", key, _sizes(found, accepted, name), wish)
    for column, before in accepted.columns.items():
        yield from _column(frame, column, before, found, wish)
    enough = min(found.rows, accepted.rows) >= FEWEST_ROWS
    for tie, then in accepted.ties.items() if enough else ():
        part = lost(then, found.ties.get(tie, 0.0))
        if part is not None:
            number, key = tie.split(" by ")
            column = {"label": columns.label, "time": columns.time}[number]
            of = {"user": columns.user, "item": columns.item}[key]
            says = f"'{of}' explains {percent(found.ties.get(tie, 0.0))} of '{column}'; it was {percent(then)}"
            if part > (wish.ties.warn or 1):
                says += ": has one of them been shuffled?"
            yield check("tie", f"{column} by {of}", part, wish.ties, says), None


def bars_of(found: Numbers | Categories) -> tuple[Bar, ...]:
    """Of a column that isn't compared."""
    names, counts = _binned(found)
    return tuple(Bar(name=name, now=count) for name, count in zip(names, counts, strict=True) if count)


def _newer(found: Profile, accepted: Profile, columns: Columns) -> Check:
    older = found.newest < accepted.newest
    says = f"the newest row is of {_moment(found.newest)}"
    if older:
        says += f"; the last accepted batch went up to {_moment(accepted.newest)}: is this an older copy?"
    return check("newest", columns.time, float(older), Limits(warn=0.0), says)


def _moment(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


def _unseen(frame: pl.LazyFrame, name: str, key: str, accepted: Profile, wish: Validate) -> Check:
    rows, seen = sampled(frame, key, accepted.keys[name])
    share = (rows - seen) / rows if rows else 0.0
    return check("unseen", key, share, wish.unseen, f"{percent(share)} of the rows have {name}s that the last accepted batch didn't have")


def _sizes(found: Profile, accepted: Profile, name: str) -> Bins:
    names = tuple(str(2**n) if n == 0 else f"{2**n} to {2 ** (n + 1) - 1}" for n in range(len(accepted.keys[name].sizes)))
    return Bins(names, accepted.keys[name].sizes, found.keys[name].sizes)


def _moved(kind: str, what: str, column: str, bins: Bins, wish: Validate) -> tuple[Check, Distribution]:
    index = bins.index
    moved = "have moved" if index > (wish.drift.warn or 0.1) else "are as they were"
    made = check(kind, column, index, wish.drift, f"{what} {moved}: stability index {index:.3f}")
    return made.model_copy(update={"unit": "index"}), Distribution(column=f"{column}: {what}", bars=bins.bars())


def _column(
    frame: pl.LazyFrame, column: str, before: Numbers | Categories, found: Profile, wish: Validate
) -> Iterator[tuple[Check, Distribution | None]]:
    now = found.columns.get(column)
    if now is None or now.kind != before.kind:
        what = "isn't there any more" if now is None else f"holds {now.kind}, and held {before.kind}"
        gone = Limits(warn=0.0, stop=wish.drift.stop)
        yield check("drift", column, 1.0, gone, f"column '{column}' {what}"), None
        return
    names, then = _binned(before)
    if isinstance(before, Numbers):
        counts = (*counted(frame, column, before.edges), now.nulls)
    else:
        again = named(frame, column, tuple(value for value, _ in before.top))
        known = tuple(again.get(value, 0) for value, _ in before.top)
        counts = (*known, found.rows - now.nulls - sum(known), now.nulls)
    yield _moved("drift", f"values of '{column}'", column, Bins(names, then, counts), wish)


def _binned(found: Numbers | Categories) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if isinstance(found, Categories):
        names: Mapping[str, int] = dict(found.top)
        return (*names, "other", "null"), (*names.values(), found.other, found.nulls)
    edges = ["-inf", *(f"{edge:.10g}" for edge in found.edges), "inf"]
    return (*(_between(low, high) for low, high in itertools.pairwise(edges)), "null"), (*found.counts, found.nulls)


def _between(low: str, high: str) -> str:
    if low == "-inf":
        return "all" if high == "inf" else f"up to {high}"
    return f"above {low}" if high == "inf" else f"{low} to {high}"
