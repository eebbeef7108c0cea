"""The order of an answer: best scores first, or as the rules say; exploration may replace one item.

Models score on different scales, so rules use standardised scores: standard deviations from the mean of the candidates. A rule therefore
means the same for every family. Candidates without scores get values by their order. The answer carries the model's own scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.gateway.candidates import Candidates
from services.gateway.exploration import Propensities, drawn
from services.gateway.filter_evaluation import FilterColumns
from services.gateway.loaded_version import LoadedVersion
from services.gateway.sorted_keys import Mask
from shared.serving.nearest import Rows, Scores, best

Floats = np.ndarray[Any, np.dtype[np.float64]]

_WEIGHED = 5_000
"""Minimum number of the best candidates among which rules choose."""
_BEHIND = 1e6
EXPLORED = "explored: drawn at random for this place"


@dataclass(frozen=True, eq=False)
class Arranged:
    rows: Rows
    """Best first."""
    scores: Sequence[float | None]
    propensities: tuple[float, ...] | None
    """Propensity of each item in its place; None without exploration."""
    explored: int | None = None
    """Place of the explored item, from 0."""
    why: Sequence[Sequence[str]] = ()
    """Descriptions of the rules that concern each item; only if the request asks for an explanation."""


def arrange(pick: Candidates, scores: Scores | None, unit: LoadedVersion, explores: bool = True) -> Arranged:
    """Orders the candidates. `scores` are row by row; None: the candidates stay in order, without exploration."""
    request = pick.request
    explore = request.rules.explore if explores and scores is not None else None
    if not request.rules.plain:
        return _RuledAnswer(pick, scores, unit).arranged(explore.rate if explore else 0.0)
    spare = explore.among if explore and request.luck < explore.rate else 1 if explore and explore.rate else 0
    places = np.arange(min(request.k + spare, len(pick.rows))) if scores is None else best(scores, unit.items[pick.rows], request.k + spare)
    shown, pool = places[: request.k], places[request.k :]
    propensities = None
    explored = None
    if explore and explore.rate:
        propensities = Propensities.equal(len(shown), len(pool), explore.rate)
        draw = drawn(propensities, request.luck, explore.rate)
        if draw is not None:
            explored, which = draw
            shown = shown.copy()
            shown[explored] = pool[which]
            propensities = propensities.after(explored)
    shown_scores = tuple(None for _ in shown) if scores is None else tuple(scores[shown].tolist())
    why = tuple((EXPLORED,) if place == explored else () for place in range(len(shown))) if request.explain else ()
    return Arranged(pick.rows[shown], shown_scores, propensities.shown if propensities else None, explored, why)


class _RuledAnswer:
    """One answer with rules. A place is an index into `_rows`; `_line` lists places by descending worth."""

    def __init__(self, pick: Candidates, scores: Scores | None, unit: LoadedVersion) -> None:
        self._request, self._unit, self._rules = pick.request, unit, pick.request.rules
        rows, numeric_scores = pick.rows, _numbers(scores, len(pick.rows))
        pinned = self._absent(rows)
        self._own = len(rows)
        self._rows = rows = np.concatenate((rows, pinned))
        worth = np.concatenate((_standard(numeric_scores), np.full(len(pinned), -np.inf)))
        self._columns = FilterColumns(
            self._request.filter_input.attributes,
            self._request.filter_input.attributes.slots.align(unit)[rows],
            self._request.filter_input.context,
        )
        behind = np.zeros(len(rows), bool)
        self._touched = [(shift, self._columns.look(shift.tree).true) for shift in self._rules.shifts]
        for shift, where in self._touched:
            if shift.by is None:
                behind |= where
            else:
                worth[where] += shift.by
        self._shares = [(share, self._columns.look(share.tree).true) for share in self._rules.shares]
        self._values = [(limit.at_most, self._codes(limit.attribute)) for limit in self._rules.distinct]
        self._worth, self._behind = worth, behind
        self._scores = None if scores is None else numeric_scores
        self._pins = self._pinned()
        self._line = self._weighed()

    def arranged(self, rate: float) -> Arranged:
        shown, free = self._greedy() if self._shares or self._values or self._rules.diversity else self._straight()
        propensities, explored = None, None
        if rate:
            pool = self._pool(shown)
            fits = self._fits(shown, pool, free)
            propensities = Propensities.of(fits, free, rate)
            draw = drawn(propensities, self._request.luck, rate)
            if draw is not None:
                explored, which = draw
                shown[explored] = pool[np.flatnonzero(fits[:, explored])[which]]
                propensities = propensities.after(explored)
        shown_scores = [self._score(place) for place in shown]
        why = [self._why(place, at == explored) for at, place in enumerate(shown)] if self._request.explain else ()
        return Arranged(self._rows[np.asarray(shown, np.intp)], shown_scores, propensities.shown if propensities else None, explored, why)

    def _absent(self, rows: Rows) -> Rows:
        """Returns items that a rule pins by key and that are not candidates: they are shown too, if the filter allows them."""
        keys = [pin.item for pin in self._rules.pins if isinstance(pin.item, int) and pin.place < self._request.k]
        if not keys:
            return rows[:0]
        absent = self._request.allowed_rows(self._unit, self._unit.rows(dict.fromkeys(keys)))
        return absent[~np.isin(absent, rows)]

    def _pinned(self) -> Mapping[int, int]:
        """Returns the pinned candidate for each place of the answer."""
        pinned: dict[int, int] = {}
        for pin in self._rules.pins:
            if pin.place >= self._request.k:
                continue
            if isinstance(pin.item, int):
                where = np.flatnonzero(self._unit.items[self._rows] == pin.item)
            else:
                where = np.flatnonzero(self._columns.look(pin.item).true[: self._own])
                where = where[np.lexsort((self._unit.items[self._rows[where]], -self._worth[where]))]
            free = [place for place in where.tolist() if place not in pinned.values()]
            if free:
                pinned[pin.place] = free[0]
        return pinned

    def _weighed(self) -> Rows:
        """Returns the best candidates in order, including the best ones of each kind for which a quota demands a minimum."""
        count = max(_WEIGHED, 20 * self._request.k) + self._rules.explore.among
        worth = np.where(self._behind, self._worth - _BEHIND, self._worth)[: self._own]
        keys = self._unit.items[self._rows[: self._own]]
        line = best(worth, keys, count)
        wanted = [np.flatnonzero(where[: self._own]) for share, where in self._shares if share.at_least]
        if wanted and len(worth) > count:
            line = np.unique(np.concatenate([line, *(places[best(worth[places], keys[places], self._request.k)] for places in wanted)]))
            line = line[np.lexsort((keys[line], -worth[line]))]
        return self._others(line, list(self._pins.values()))

    def _straight(self) -> tuple[list[int], list[bool]]:
        """Like `_greedy`, for rules under which the items of an answer do not depend on each other."""
        rest = iter(self._line[: self._request.k].tolist())
        shown, free = list[int](), list[bool]()
        for at in range(self._request.k):
            place = self._pins[at] if at in self._pins else next(rest, None)
            if place is not None:
                shown.append(place)
                free.append(at not in self._pins)
        return shown, free

    def _greedy(self) -> tuple[list[int], list[bool]]:
        """Returns the shown candidates, and which places are not pinned."""
        line, shown, free = self._line, list[int](), list[bool]()
        open_ = np.ones(len(line), bool)
        counts = [sum(bool(where[place]) for place in self._pins.values()) for _, where in self._shares]
        distinct_counters = [_ValueCounts(at_most, codes, line, self._pins.values()) for at_most, codes in self._values]
        like = _Similarity(self._unit, self._rows[line], self._rules.diversity)
        for place in self._pins.values():
            like.shown(int(self._rows[place]))
        left = self._request.k - len(self._pins)
        for at in range(self._request.k):
            if at in self._pins:
                shown.append(self._pins[at])
                free.append(False)
                continue
            allowed = open_ & self._allowed(line, counts, left)
            for counter in distinct_counters:
                allowed &= counter.open
            left -= 1
            if not allowed.any():
                continue
            chosen = int(np.argmax(allowed)) if not self._rules.diversity else like.best(self._worth[line], self._behind[line], allowed)
            open_[chosen] = False
            place = int(line[chosen])
            counts = [count + bool(where[place]) for count, (_, where) in zip(counts, self._shares, strict=True)]
            for counter in distinct_counters:
                counter.take(chosen)
            like.shown(int(self._rows[place]))
            shown.append(place)
            free.append(True)
        return shown, free

    def _allowed(self, line: Rows, counts: Sequence[int], left: int) -> Mask:
        allowed, must = np.ones(len(line), bool), np.zeros(len(line), bool)
        owed = 0
        for count, (share, where) in zip(counts, self._shares, strict=True):
            if share.at_most is not None and count >= share.at_most:
                allowed &= ~where[line]
            elif share.at_least is not None and count < share.at_least:
                owed += share.at_least - count
                must |= where[line]
        return allowed & must if owed >= left and (allowed & must).any() else allowed

    def _pool(self, shown: Sequence[int]) -> Rows:
        rest = self._others(self._line[: len(shown) + self._rules.explore.among + self._behind.sum()], shown)
        return rest[~self._behind[rest]][: self._rules.explore.among]

    def _others(self, line: Rows, shown: Sequence[int]) -> Rows:
        excluded = np.zeros(len(self._rows), bool)
        excluded[shown] = True
        others: Rows = line[~excluded[line]]
        return others

    def _fits(self, shown: Sequence[int], pool: Rows, free: Sequence[bool]) -> Mask:
        """Returns which candidate of the pool could replace which shown item under the rules, the others unchanged."""
        fits = np.tile(np.asarray(free, bool), (len(pool), 1))
        places = np.asarray(shown, np.intp)
        for share, where in self._shares:
            after = where[places].sum() - where[places][None, :].astype(int) + where[pool][:, None]
            if share.at_most is not None:
                fits &= (after <= share.at_most) | ~where[pool][:, None]
            if share.at_least is not None:
                fits &= (after >= share.at_least) | ~where[places][None, :] | where[pool][:, None]
        for at_most, codes in self._values:
            same = codes[pool][:, None] == codes[places][None, :]
            fits &= (same.sum(axis=1)[:, None] - same < at_most) | (codes[pool] < 0)[:, None]
        return fits

    def _codes(self, attribute: str) -> Any:
        """Returns an integer per value of an attribute; -1 for unknown."""
        codes = np.full(len(self._rows), -1, np.int64)
        for (name, _), column in self._request.filter_input.attributes.scalars.items():
            if name == attribute:
                values = column[self._columns.slots]
                there = ~np.isnan(values) if values.dtype == np.float64 else values >= 0
                codes[there] = codes.max(initial=-1) + 1 + np.unique(values[there], return_inverse=True)[1]
        return codes

    def _score(self, place: int) -> float | None:
        return None if self._scores is None or place >= self._own else float(self._scores[place])

    def _why(self, place: int, explored: bool) -> Sequence[str]:
        reasons = [shift.description for shift, where in self._touched if where[place]]
        reasons += [pin.description for pin in self._rules.pins if self._pins.get(pin.place) == place]
        reasons += [share.description for share, where in self._shares if where[place] and share.at_least is not None]
        return [*reasons, EXPLORED] if explored else reasons


class _ValueCounts:
    """Counts how often each value of an attribute is shown."""

    def __init__(self, at_most: int, codes: Any, line: Rows, pins: Any) -> None:
        self._at_most, self._codes = at_most, codes[line]
        self.open = np.ones(len(line), bool)
        self._counts: dict[int, int] = {}
        for place in pins:
            self._count(int(codes[place]))

    def take(self, chosen: int) -> None:
        self._count(int(self._codes[chosen]))

    def _count(self, code: int) -> None:
        if code >= 0:
            self._counts[code] = count = self._counts.get(code, 0) + 1
            if count >= self._at_most:
                self.open &= self._codes != code


class _Similarity:
    """Maximal marginal relevance: the similarity of each candidate to the items already shown, by the version's vectors."""

    def __init__(self, unit: LoadedVersion, rows: Rows, diversity: float) -> None:
        self._vectors, self._diversity = unit.vectors if diversity else None, diversity
        self._most: Any = 0.0
        if self._vectors is not None:
            self._directions = self._vectors.directions(rows)

    def shown(self, row: int) -> None:
        if self._vectors is not None:
            self._most = np.maximum(self._most, self._directions @ self._vectors.directions(np.array([row]))[0])

    def best(self, worth: Floats, behind: Mask, allowed: Mask) -> int:
        low, high = worth.min(), worth.max()
        relevance = (worth - low) / (high - low) if high > low else np.zeros(len(worth))
        value = (1 - self._diversity) * relevance - self._diversity * self._most - 2 * behind
        return int(np.argmax(np.where(allowed, value, -np.inf)))


def _numbers(scores: Scores | None, count: int) -> Floats:
    """Returns the scores, or numbers that express the candidates' order."""
    return np.arange(count, 0, -1, dtype=np.float64) if scores is None else scores.astype(np.float64)


def _standard(scores: Floats) -> Floats:
    spread = scores.std() if len(scores) else 0.0
    standardised: Floats = (scores - scores.mean()) / spread if spread > 0 else np.zeros(len(scores))
    return standardised
