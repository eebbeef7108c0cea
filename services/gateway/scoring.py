"""What a version would show a user: its own order of the candidates, or theirs without it, or what is like the items in the request, or
popular items, and why. No fault of scoring costs the answer."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.gateway.breaker import Breaker
from services.gateway.candidates import Candidates, Wish, alike, candidates, popular
from services.gateway.feeding import Feeding
from services.gateway.laps import Laps
from services.gateway.ordering import Arranged, arrange
from services.gateway.units import Array, Unit
from shared.contracts.events import BY_ITEMS, NO_SCORES, UNKNOWN_USER
from shared.domain.errors import EyasError, ServerAway, Unavailable
from shared.ports import Scorer
from shared.serving.nearest import Scores
from shared.telemetry import metrics
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

Items = tuple[tuple[int, float | None], ...]
TOGETHER = 16_384
"""Rows of one call to the model server, at most, where several requests share it."""
_SMALL = 300
"""Items of a whole catalogue, up to which one call for several users takes less than a call for each (measured): a catalogue that comes
as it came before is known to both sides, and one that is repeated is not."""


AWAY = 5.0
"""Seconds for which the model server is taken to be away after a request found it away: longer than a circuit breaker's longest pause."""

_NO_SCORES: Scores = np.empty(0, np.float32)


@dataclass(frozen=True)
class Told:
    """Of one answer, for who asks how it came about."""

    looked: int
    kept: int
    """Of those, how many the filter left."""
    scored: bool
    explored: int | None
    why: Sequence[Sequence[str]]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """How many the filter dropped, by what says so."""


@dataclass(frozen=True)
class Shown:
    items: Items
    """Best first; what no model has scored has no score."""
    fallback: str | None = None
    asked: bool = False
    """Whether the version was asked for scores."""
    chances: tuple[float, ...] | None = None
    """That each item stood in its place; None where nothing is explored."""
    told: Told | None = None

    @property
    def score(self) -> float | None:
        """The mean of the items shown."""
        scores = [score for _, score in self.items if score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True)
class Ranked:
    """What a version shows for several requests, in their order."""

    shown: Sequence[Shown]
    seconds: float
    """That all of it took: retrieval, filter, features, scoring and order."""


class Scoring:
    """`explores`: whether the requests' draws change what is shown. `level`: of the log line about a version that gives no scores."""

    def __init__(self, server: Scorer, feeding: Feeding, explores: bool = True, level: int = logging.WARNING) -> None:
        self._server = server
        self._feeding = feeding
        self._explores = explores
        self._level = level
        self._breaker = Breaker()
        self._outages = Outages(log, QUIET)
        self._away_until = -math.inf

    @property
    def server_away(self) -> bool:
        """Whether the model server didn't answer for any version when it was last asked, a moment ago."""
        return time.monotonic() < self._away_until

    def show(self, wishes: Sequence[Wish], unit: Unit, laps: Laps) -> Ranked:
        """Of one version."""
        began = time.perf_counter()
        known = [unit.scores(wish.user, wish.items) for wish in wishes]
        found = iter(self._own([wish for wish, is_known in zip(wishes, known, strict=True) if is_known], unit, laps))
        shown = [next(found) if is_known else _stranger(wish, unit) for wish, is_known in zip(wishes, known, strict=True)]
        laps.lap("order")
        return Ranked(shown, time.perf_counter() - began)

    def _own(self, wishes: Sequence[Wish], unit: Unit, laps: Laps) -> Iterator[Shown]:
        """Of users whom the version knows, or whose items it reads."""
        picks = candidates(wishes, unit, laps)
        asked = [pick for pick in picks if len(pick.rows)]
        if not asked:
            return (shown(pick, None, unit) for pick in picks)
        key = (wishes[0].recommender, unit.version)
        if not self._breaker.lets(key):
            metrics.UNASKED.labels(key[0], str(key[1])).inc(len(asked))
            return (_unscored(pick, unit, asked=False) for pick in picks)
        good = False
        try:
            found = scored(self._server, self._feeding, picks, unit, laps)
            good = not all(isinstance(one.scores, Exception) for one in found)
            away = any(isinstance(one.scores, ServerAway) for one in found)
            self._away_until = time.monotonic() + AWAY if away else -math.inf
        finally:
            (self._breaker.answered if good else self._breaker.failed)(key)
        laps.lap("score")
        return (self._shown(pick, unit, one) for pick, one in zip(picks, found, strict=True))

    def _shown(self, pick: Candidates, unit: Unit, found: Scored) -> Shown:
        if isinstance(found.scores, Exception):
            self._failed(pick.wish, unit, found.scores)
            return _unscored(pick, unit, found.asked)
        if found.asked:
            self._answered(pick.wish, unit)
        return shown(pick, found.scores, unit, found.asked, explores=self._explores)

    def _failed(self, wish: Wish, unit: Unit, error: Exception) -> None:
        """Said once, counted each time."""
        key = (wish.recommender, unit.version)
        said = str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}"
        message = "%s version %d: %s; answers go out without its scores"
        self._outages.fail(key, message, *key, said, error=error, level=self._level)

    def _answered(self, wish: Wish, unit: Unit) -> None:
        key = (wish.recommender, unit.version)
        self._outages.succeed(key, "%s version %d: recovered, it scores", *key, level=min(self._level, logging.INFO))


@dataclass(frozen=True, eq=False)
class Scored:
    """What the version made of candidates; an exception where it gives no scores that could be ordered."""

    scores: Scores | Exception
    """Row by row."""
    asked: bool = False
    """Whether the model server was asked."""


def scored(server: Scorer, feeding: Feeding, picks: Sequence[Candidates], unit: Unit, laps: Laps | None = None) -> list[Scored]:
    """In the order of the picks; as few calls as their rows allow."""
    found: list[Scored] = []
    asking = [pick for pick in picks if len(pick.rows)]
    try:
        asked = feeding.of([pick.wish for pick in asking], unit)
    except Exception as error:
        found = [Scored(error)] * len(asking)
        asking = []
    if laps is not None and unit.views:
        laps.lap("features")
    for some in _calls(asking, unit):
        part = slice(len(found), len(found) + len(some))
        found += _scored(server, some, unit, {name: values[part] for name, values in asked.items()})
    those = iter(found)
    return [next(those) if len(pick.rows) else Scored(_NO_SCORES) for pick in picks]


def shown(
    pick: Candidates,
    scores: Scores | None,
    unit: Unit,
    asked: bool = False,
    fallback: str | None = None,
    explores: bool = True,
) -> Shown:
    """In its order; without scores the likeliest come first."""
    found = arrange(pick, scores, unit, explores)
    items = tuple(zip(unit.items[found.rows].tolist(), found.scores, strict=True))
    return Shown(items, fallback, asked, found.chances, _told(pick, scores, unit, found) if pick.wish.explain else None)


def _told(pick: Candidates, scores: Scores | None, unit: Unit, found: Arranged) -> Told:
    dropped = {} if pick.before is None else pick.wish.filter.dropped(unit, pick.before, pick.wish.asked)
    return Told(pick.looked, len(pick.rows), scores is not None, found.explored, found.why, dropped)


def _stranger(wish: Wish, unit: Unit) -> Shown:
    """For a user whom the version doesn't know."""
    found = alike(wish, unit)
    if found is not None and len(found.rows):
        return shown(found, None, unit, fallback=BY_ITEMS)
    return shown(popular(wish, unit), None, unit, fallback=UNKNOWN_USER)


def _unscored(pick: Candidates, unit: Unit, asked: bool) -> Shown:
    """The likeliest ones, or else popular ones."""
    if not len(pick.rows):
        return shown(pick, None, unit)
    return shown(pick if pick.retrieved else popular(pick.wish, unit), None, unit, asked, NO_SCORES)


def _calls(picks: Sequence[Candidates], unit: Unit) -> Iterator[Sequence[Candidates]]:
    """Those that share a call."""
    some: list[Candidates] = []
    rows = 0
    for pick in picks:
        apart = not pick.retrieved and len(unit.items) > _SMALL
        if some and (apart or rows + len(pick.rows) > TOGETHER):
            yield some
            some, rows = [], 0
        some.append(pick)
        rows += len(pick.rows)
    if some:
        yield some


def _scored(server: Scorer, picks: Sequence[Candidates], unit: Unit, asked: Mapping[str, Array]) -> list[Scored]:
    """By one call. The whole catalogue goes as it is, and what may not be shown is left out afterwards: its columns are the same in
    every call, which the server's side knows how to use."""
    whole = len(picks) == 1 and not picks[0].retrieved
    rows = [unit.every if whole else pick.rows for pick in picks]
    ends = np.cumsum([len(one) for one in rows])
    try:
        feed = unit.feed(asked) if whole else unit.feed_of(asked, rows)
        patience = picks[0].wish.filter.serve.deadlines.score.total_seconds()
        scores = np.asarray(server.score(picks[0].wish.recommender, unit.version, feed, patience))
        if scores.shape != (ends[-1],):
            raise Unavailable(f"the server gave scores of shape {scores.shape} for {ends[-1]} items")
    except Exception as error:
        return [Scored(error, asked=True)] * len(picks)
    parts = np.split(scores, ends[:-1])
    return [Scored(_numbers(pick, part, whole), asked=True) for pick, part in zip(picks, parts, strict=True)]


def _numbers(pick: Candidates, scores: Scores, whole: bool) -> Scores | Exception:
    if not np.isfinite(scores).all():
        return Unavailable("the server gave scores that are no numbers")
    return scores[pick.rows] if whole else scores
