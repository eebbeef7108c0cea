"""What a version could show a user: what its vectors find, or the whole catalogue, without what may not be shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from services.gateway.filtering import Filter, FilterInput
from services.gateway.loaded_version import Unit
from services.gateway.rules import Rules
from services.gateway.stage_timer import StageTimer
from shared.serving.nearest import Rows

_WIDER = 10
"""So many times the candidates are looked at where a filter leaves too few of them."""


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Wish:
    """What is asked of a version, whichever it is."""

    recommender: str
    user: int
    k: int
    filter: Filter
    filter_input: FilterInput
    rules: Rules
    luck: float = 1.0
    """In [0, 1): what is explored."""
    items: tuple[int, ...] = ()
    """What the user looked at just now, the newest last."""
    explain: bool = False
    at: datetime = _LONG_AGO
    """When it was asked."""

    def allowed_rows(self, unit: Unit, rows: Rows) -> Rows:
        """Those whose items may be shown, in their order."""
        return rows[self.filter.keep(unit, rows, self.filter_input)]


@dataclass(frozen=True, eq=False)
class Candidates:
    wish: Wish
    rows: Rows
    """What may be shown."""
    retrieved: bool
    """The likeliest first, and not the whole catalogue."""
    looked: int
    """So many were there before the filter."""
    before: Rows | None = None
    """Those; None where they aren't a filter's to choose among."""


def candidates(wishes: Sequence[Wish], unit: Unit, laps: StageTimer) -> list[Candidates]:
    """Of users whom the version knows, or whose items it reads."""
    if not wishes:
        return []
    retrieve = wishes[0].filter.serve.retrieve
    if retrieve is None or unit.vectors is None or retrieve.candidates >= len(unit.items):
        picks = [Candidates(wish, wish.allowed_rows(unit, unit.every), False, len(unit.items), unit.every) for wish in wishes]
    else:
        retrieved = unit.retrieve_many([wish.user for wish in wishes], retrieve.candidates)
        laps.lap("retrieve")
        picks = [
            (_by_session(wish, unit) if rows is None else None) or _retrieved(wish, unit, rows, retrieve.candidates)
            for wish, rows in zip(wishes, retrieved, strict=True)
        ]
    laps.lap("filter")
    return picks


def alike(wish: Wish, unit: Unit) -> Candidates | None:
    """What is like the items that the request brings along; None where it brings none that the version has vectors of."""
    rows = unit.rows(wish.items)
    if unit.vectors is None or not len(rows):
        return None
    count = wish.filter.serve.retrieve.candidates if wish.filter.serve.retrieve else _WIDER * wish.k
    similar_rows = unit.vectors.alike(rows, count)
    return Candidates(wish, wish.allowed_rows(unit, similar_rows), True, len(similar_rows), similar_rows)


def _by_session(wish: Wish, unit: Unit) -> Candidates | None:
    """Of whom the vectors don't know, what is like the items that the version is to read; None where too few are left of these."""
    similar_candidates = alike(wish, unit) if unit.reads(wish.items) else None
    return similar_candidates if similar_candidates is not None and len(similar_candidates.rows) >= wish.k else None


def popular(wish: Wish, unit: Unit) -> Candidates:
    """The most popular ones that may be shown, a few more than are asked for."""
    rows = _with_fresh(wish, unit, _popular(wish, unit, _WIDER * wish.k))
    return Candidates(wish, rows, True, len(unit.popular_rows), unit.popular_rows)


def _with_fresh(wish: Wish, unit: Unit, rows: Rows) -> Rows:
    """New items spread evenly among them, as many as the spec says: what is new can't be popular yet."""
    share = wish.filter.serve.fresh
    if not share or not len(unit.fresh_rows):
        return rows
    fresh = deque(wish.allowed_rows(unit, unit.fresh_rows[: _WIDER * wish.k]).tolist())
    mixed: dict[int, None] = {}
    for row in rows.tolist():
        while fresh and int((len(mixed) + 1) * share) > int(len(mixed) * share):
            mixed[fresh.popleft()] = None
        mixed[row] = None
    return np.fromiter(mixed, np.intp, len(mixed))


def _popular(wish: Wish, unit: Unit, count: int) -> Rows:
    """Among the first `count`, or among all where that leaves too few."""
    first = wish.allowed_rows(unit, unit.popular_rows[:count])
    return first if len(first) >= wish.k else wish.allowed_rows(unit, unit.popular_rows)[:count]


def _retrieved(wish: Wish, unit: Unit, rows: Rows | None, count: int) -> Candidates:
    if rows is None:  # a user whom the model knows and the vectors don't
        return Candidates(wish, _popular(wish, unit, count), True, len(unit.popular_rows), unit.popular_rows)
    allowed_rows = wish.allowed_rows(unit, rows)
    for wider in (_WIDER * count, len(unit.items)):
        if len(allowed_rows) >= wish.k or len(rows) == len(unit.items):
            break
        more = unit.retrieve(wish.user, min(wider, len(unit.items)))
        rows = rows if more is None else more
        allowed_rows = wish.allowed_rows(unit, rows)[:count]
    return Candidates(wish, allowed_rows, True, len(rows), rows)
