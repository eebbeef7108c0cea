"""Candidates of a request: retrieved items or the whole catalogue, after the filter."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from services.gateway.filtering import Filter, FilterInput
from services.gateway.liked_items import Likes
from services.gateway.loaded_version import LoadedVersion
from services.gateway.rules import Rules
from services.gateway.stage_timer import StageTimer
from shared.serving.nearest import Rows

_WIDER = 10
"""Factor by which retrieval widens when the filter leaves too few candidates."""
_NEW_PART = 4
"""New items are added up to this part of the retrieved candidates."""


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RankingRequest:
    """A ranking request, independent of the version."""

    recommender: str
    user: int
    k: int
    filter: Filter
    filter_input: FilterInput
    rules: Rules
    luck: float = 1.0
    """Random number in [0, 1) that draws the exploration."""
    items: tuple[int, ...] = ()
    """Items that the user just viewed, newest last."""
    recent: Likes = ()
    """The user's newest likes, newest last."""
    explain: bool = False
    at: datetime = _LONG_AGO
    """Time of the request."""

    def newest_items(self, unit: LoadedVersion) -> tuple[int, ...]:
        """Returns the items that the user liked after the version's training, then the items of the request; newest last. Of a user whom
        the version does not know, all likes count: it learned none of them. A version that reads none gets the items of the request."""
        learned = unit.learned_until
        if unit.session is None or learned is None:
            return self.items
        since_training = self.recent if not unit.knows(self.user) else [like for like in self.recent if like[1] > learned]
        return (*(item for item, _ in since_training), *self.items)

    def allowed_rows(self, unit: LoadedVersion, rows: Rows) -> Rows:
        """Returns the rows whose items may be shown, in their order."""
        return rows[self.filter.keep(unit, rows, self.filter_input)]


@dataclass(frozen=True, eq=False)
class Candidates:
    request: RankingRequest
    rows: Rows
    """Rows after the filter."""
    retrieved: bool
    """Whether the rows are retrieved, most likely first, and not the whole catalogue."""
    looked: int
    """Number of rows before the filter."""
    before: Rows | None = None
    """Rows before the filter; None if no filter applies."""


def candidates(requests: Sequence[RankingRequest], unit: LoadedVersion, laps: StageTimer) -> list[Candidates]:
    """Returns candidates for users that the version can score."""
    if not requests:
        return []
    retrieve = requests[0].filter.serve.retrieve
    if retrieve is None or unit.vectors is None or retrieve.candidates >= len(unit.items):
        picks = [Candidates(request, request.allowed_rows(unit, unit.every), False, len(unit.items), unit.every) for request in requests]
    else:
        retrieved = unit.retrieve_many([request.user for request in requests], retrieve.candidates)
        laps.lap("retrieve")
        picks = [
            (_by_session(request, unit) if rows is None else None)
            or _retrieved(request, unit, None if rows is None else _with_alike(request, unit, rows), retrieve.candidates)
            for request, rows in zip(requests, retrieved, strict=True)
        ]
        new = unit.new_rows[: -(-retrieve.candidates // _NEW_PART)]
        if len(new):
            picks = [_with_new(pick, unit, new) for pick in picks]
    laps.lap("filter")
    return picks


def _with_new(pick: Candidates, unit: LoadedVersion, new: Rows) -> Candidates:
    """Adds new items, which have no vectors to be retrieved by."""
    rows = np.concatenate([pick.rows, pick.request.allowed_rows(unit, new)])
    before = None if pick.before is None else np.concatenate([pick.before, new])
    return replace(pick, rows=rows, looked=pick.looked + len(new), before=before)


def alike(request: RankingRequest, unit: LoadedVersion) -> Candidates | None:
    """Returns items similar to the user's newest items; None if the version has vectors of none of them."""
    rows = unit.rows(request.newest_items(unit))
    if unit.vectors is None or not len(rows):
        return None
    count = request.filter.serve.retrieve.candidates if request.filter.serve.retrieve else _WIDER * request.k
    similar_rows = unit.vectors.alike(rows, count)
    return Candidates(request, request.allowed_rows(unit, similar_rows), True, len(similar_rows), similar_rows)


def _with_alike(request: RankingRequest, unit: LoadedVersion, rows: Rows) -> Rows:
    """Replaces the last of the retrieved rows, at most half, by items similar to the newest ones, which the user's vector does not know."""
    newest = request.newest_items(unit)
    if unit.vectors is None or not unit.reads(newest):
        return rows
    similar = unit.vectors.alike(unit.rows(newest), len(rows) // 2)
    added = similar[~np.isin(similar, rows)]
    return np.concatenate([rows[: len(rows) - len(added)], added])


def _by_session(request: RankingRequest, unit: LoadedVersion) -> Candidates | None:
    """Returns items similar to the newest items of a user without a vector; None if too few are left."""
    similar_candidates = alike(request, unit) if unit.reads(request.newest_items(unit)) else None
    return similar_candidates if similar_candidates is not None and len(similar_candidates.rows) >= request.k else None


def popular(request: RankingRequest, unit: LoadedVersion) -> Candidates:
    """Returns the most popular items that may be shown, more than requested."""
    rows = _with_fresh(request, unit, _popular(request, unit, _WIDER * request.k))
    return Candidates(request, rows, True, len(unit.popular_rows), unit.popular_rows)


def _with_fresh(request: RankingRequest, unit: LoadedVersion, rows: Rows) -> Rows:
    """Mixes in new items evenly, in the spec's share: new items cannot be popular yet."""
    share = request.filter.serve.fresh
    if not share or not len(unit.fresh_rows):
        return rows
    fresh = deque(request.allowed_rows(unit, unit.fresh_rows[: _WIDER * request.k]).tolist())
    mixed: dict[int, None] = {}
    for row in rows.tolist():
        while fresh and int((len(mixed) + 1) * share) > int(len(mixed) * share):
            mixed[fresh.popleft()] = None
        mixed[row] = None
    return np.fromiter(mixed, np.intp, len(mixed))


def _popular(request: RankingRequest, unit: LoadedVersion, count: int) -> Rows:
    """Filters the `count` most popular items, or all if too few are left."""
    first = request.allowed_rows(unit, unit.popular_rows[:count])
    return first if len(first) >= request.k else request.allowed_rows(unit, unit.popular_rows)[:count]


def _retrieved(request: RankingRequest, unit: LoadedVersion, rows: Rows | None, count: int) -> Candidates:
    if rows is None:  # the model knows the user, the vectors do not
        return Candidates(request, _popular(request, unit, count), True, len(unit.popular_rows), unit.popular_rows)
    allowed_rows = request.allowed_rows(unit, rows)
    for wider in (_WIDER * count, len(unit.items)):
        if len(allowed_rows) >= request.k or len(rows) == len(unit.items):
            break
        more = unit.retrieve(request.user, min(wider, len(unit.items)))
        rows = rows if more is None else more
        allowed_rows = request.allowed_rows(unit, rows)[:count]
    return Candidates(request, allowed_rows, True, len(rows), rows)
