"""What a version could show a user: what its vectors find, or the whole catalogue, without what may not be shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from services.gateway.filtering import Asked, Filter
from services.gateway.laps import Laps
from services.gateway.rules import Rules
from services.gateway.units import Unit
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
    asked: Asked
    rules: Rules
    luck: float = 1.0
    """In [0, 1): what is explored."""
    items: tuple[int, ...] = ()
    """What the user looked at just now, the newest last."""
    explain: bool = False
    at: datetime = _LONG_AGO
    """When it was asked."""

    def kept(self, unit: Unit, rows: Rows) -> Rows:
        """Those whose items may be shown, in their order."""
        return rows[self.filter.keep(unit, rows, self.asked)]


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


def candidates(wishes: Sequence[Wish], unit: Unit, laps: Laps) -> list[Candidates]:
    """Of users whom the version knows, or whose items it reads."""
    if not wishes:
        return []
    retrieve = wishes[0].filter.serve.retrieve
    if retrieve is None or unit.vectors is None or retrieve.candidates >= len(unit.items):
        found = [Candidates(wish, wish.kept(unit, unit.every), False, len(unit.items), unit.every) for wish in wishes]
    else:
        retrieved = unit.retrieve_many([wish.user for wish in wishes], retrieve.candidates)
        laps.lap("retrieve")
        found = [
            (_by_session(wish, unit) if rows is None else None) or _retrieved(wish, unit, rows, retrieve.candidates)
            for wish, rows in zip(wishes, retrieved, strict=True)
        ]
    laps.lap("filter")
    return found


def alike(wish: Wish, unit: Unit) -> Candidates | None:
    """What is like the items that the request brings along; None where it brings none that the version has vectors of."""
    rows = unit.rows(wish.items)
    if unit.vectors is None or not len(rows):
        return None
    count = wish.filter.serve.retrieve.candidates if wish.filter.serve.retrieve else _WIDER * wish.k
    found = unit.vectors.alike(rows, count)
    return Candidates(wish, wish.kept(unit, found), True, len(found), found)


def _by_session(wish: Wish, unit: Unit) -> Candidates | None:
    """Of whom the vectors don't know, what is like the items that the version is to read; None where too few are left of these."""
    found = alike(wish, unit) if unit.reads(wish.items) else None
    return found if found is not None and len(found.rows) >= wish.k else None


def popular(wish: Wish, unit: Unit) -> Candidates:
    """The most popular ones that may be shown, a few more than are asked for."""
    rows = _with_fresh(wish, unit, _popular(wish, unit, _WIDER * wish.k))
    return Candidates(wish, rows, True, len(unit.popular_rows), unit.popular_rows)


def _with_fresh(wish: Wish, unit: Unit, rows: Rows) -> Rows:
    """New items spread evenly among them, as many as the spec says: what is new can't be popular yet."""
    share = wish.filter.serve.fresh
    if not share or not len(unit.fresh_rows):
        return rows
    fresh = deque(wish.kept(unit, unit.fresh_rows[: _WIDER * wish.k]).tolist())
    mixed: dict[int, None] = {}
    for row in rows.tolist():
        while fresh and int((len(mixed) + 1) * share) > int(len(mixed) * share):
            mixed[fresh.popleft()] = None
        mixed[row] = None
    return np.fromiter(mixed, np.intp, len(mixed))


def _popular(wish: Wish, unit: Unit, count: int) -> Rows:
    """Among the first `count`, or among all where that leaves too few."""
    first = wish.kept(unit, unit.popular_rows[:count])
    return first if len(first) >= wish.k else wish.kept(unit, unit.popular_rows)[:count]


def _retrieved(wish: Wish, unit: Unit, rows: Rows | None, count: int) -> Candidates:
    if rows is None:  # a user whom the model knows and the vectors don't
        return Candidates(wish, _popular(wish, unit, count), True, len(unit.popular_rows), unit.popular_rows)
    kept = wish.kept(unit, rows)
    for wider in (_WIDER * count, len(unit.items)):
        if len(kept) >= wish.k or len(rows) == len(unit.items):
            break
        more = unit.retrieve(wish.user, min(wider, len(unit.items)))
        rows = rows if more is None else more
        kept = wish.kept(unit, rows)[:count]
    return Candidates(wish, kept, True, len(rows), rows)
