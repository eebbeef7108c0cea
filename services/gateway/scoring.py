"""Scoring: the items that a version shows a user. A fault of scoring never costs the answer.

Known users get the version's own order, or the candidates' order if it gives no scores; so do unknown users with newest items (recent
likes, or items of the request) that the version reads. Other unknown users get items similar to their newest items, or popular items.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.gateway.breaker import Breaker
from services.gateway.candidates import Candidates, RankingRequest, alike, candidates, popular
from services.gateway.loaded_version import Array, LoadedVersion
from services.gateway.model_inputs import ModelInputs
from services.gateway.ordering import Arranged, arrange
from services.gateway.stage_timer import StageTimer
from shared.contracts.events import BY_ITEMS, NO_SCORES, UNKNOWN_USER
from shared.domain.errors import EyasError, ServerAway, Unavailable
from shared.ports import Scorer
from shared.serving.nearest import Scores
from shared.telemetry import metrics
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

Items = tuple[tuple[int, float | None], ...]
TOGETHER = 16_384
"""Maximum rows of one call to the model server that several requests share."""
_SMALL = 300
"""Catalogue size up to which one call for several users is faster than one call each (measured). Both sides cache an unchanged catalogue,
but not a repeated one.
"""


AWAY = 5.0
"""Seconds for which the model server counts as away after a failed request; longer than the circuit breaker's longest pause."""

_NO_SCORES: Scores = np.empty(0, np.float32)


@dataclass(frozen=True)
class AnswerExplanation:
    """How an answer came about."""

    looked: int
    eligible: int
    """Candidates left after the filter."""
    scored: bool
    explored: int | None
    why: Sequence[Sequence[str]]
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of dropped candidates by the filter entry that dropped them."""


@dataclass(frozen=True)
class ShownItems:
    items: Items
    """Best first; an item that no model scored has no score."""
    fallback: str | None = None
    model_called: bool = False
    """Whether the version was asked for scores."""
    propensities: tuple[float, ...] | None = None
    """Propensity of each item in its place; None without exploration."""
    explanation: AnswerExplanation | None = None

    @property
    def score(self) -> float | None:
        """Mean score of the shown items."""
        scores = [score for _, score in self.items if score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True)
class RankedRequests:
    """What a version shows for several requests, in their order."""

    shown: Sequence[ShownItems]
    seconds: float
    """Duration of all stages together: retrieval, filter, features, scoring and order."""


class Scoring:
    """`explores`: whether exploration may change what is shown. `level`: of the log line about a version that gives no scores."""

    def __init__(self, server: Scorer, feeding: ModelInputs, explores: bool = True, level: int = logging.WARNING) -> None:
        self._server = server
        self._feeding = feeding
        self._explores = explores
        self._level = level
        self._breaker = Breaker()
        self._outages = Outages(log, QUIET)
        self._away_until = -math.inf

    @property
    def server_away(self) -> bool:
        """Whether the latest call, at most AWAY seconds ago, found the model server away."""
        return time.monotonic() < self._away_until

    def show(self, requests: Sequence[RankingRequest], unit: LoadedVersion, laps: StageTimer) -> RankedRequests:
        """Ranks the candidates of each request for one version."""
        began = time.perf_counter()
        scorable = [unit.scores(request.user, request.newest_items(unit)) for request in requests]
        own_shown = iter(self._own([request for request, is_known in zip(requests, scorable, strict=True) if is_known], unit, laps))
        shown = [next(own_shown) if is_known else _stranger(request, unit) for request, is_known in zip(requests, scorable, strict=True)]
        laps.lap("order")
        return RankedRequests(shown, time.perf_counter() - began)

    def _own(self, requests: Sequence[RankingRequest], unit: LoadedVersion, laps: StageTimer) -> Iterator[ShownItems]:
        """Scores users that the version knows, or whose session it reads."""
        picks = candidates(requests, unit, laps)
        to_score = [pick for pick in picks if len(pick.rows)]
        if not to_score:
            return (shown(pick, None, unit) for pick in picks)
        key = (requests[0].recommender, unit.version)
        if not self._breaker.lets(key):
            metrics.UNASKED.labels(key[0], str(key[1])).inc(len(to_score))
            return (_unscored(pick, unit, model_called=False) for pick in picks)
        good = False
        try:
            results = scored(self._server, self._feeding, picks, unit, laps)
            good = not all(isinstance(result.scores, Exception) for result in results)
            away = any(isinstance(result.scores, ServerAway) for result in results)
            self._away_until = time.monotonic() + AWAY if away else -math.inf
        finally:
            (self._breaker.answered if good else self._breaker.failed)(key)
        laps.lap("score")
        return (self._shown(pick, unit, result) for pick, result in zip(picks, results, strict=True))

    def _shown(self, pick: Candidates, unit: LoadedVersion, result: ScoredCandidates) -> ShownItems:
        if isinstance(result.scores, Exception):
            self._failed(pick.request, unit, result.scores)
            return _unscored(pick, unit, result.model_called)
        if result.model_called:
            self._answered(pick.request, unit)
        return shown(pick, result.scores, unit, result.model_called, explores=self._explores)

    def _failed(self, request: RankingRequest, unit: LoadedVersion, error: Exception) -> None:
        """Logs the first failure; counts each one."""
        key = (request.recommender, unit.version)
        reason = str(error) if isinstance(error, EyasError) else f"{type(error).__name__}: {error}"
        self._outages.fail(key, "version: scoring failed recommender=%s version=%d error=%s", *key, reason, error=error, level=self._level)

    def _answered(self, request: RankingRequest, unit: LoadedVersion) -> None:
        key = (request.recommender, unit.version)
        self._outages.succeed(key, "version: scoring recovered recommender=%s version=%d", *key, level=min(self._level, logging.INFO))


@dataclass(frozen=True, eq=False)
class ScoredCandidates:
    """Scores of the candidates, or the exception if the version gives no usable scores."""

    scores: Scores | Exception
    """Row by row."""
    model_called: bool = False
    """Whether the model server was asked."""


def scored(
    server: Scorer, feeding: ModelInputs, picks: Sequence[Candidates], unit: LoadedVersion, laps: StageTimer | None = None
) -> list[ScoredCandidates]:
    """Scores the candidates with few calls; the results are in the order of the picks."""
    results: list[ScoredCandidates] = []
    asking = [pick for pick in picks if len(pick.rows)]
    try:
        request_columns = feeding.of([pick.request for pick in asking], unit)
    except Exception as error:
        results = [ScoredCandidates(error)] * len(asking)
        asking = []
    if laps is not None and unit.views:
        laps.lap("features")
    for some in _calls(asking, unit):
        part = slice(len(results), len(results) + len(some))
        results += _scored(server, some, unit, {name: values[part] for name, values in request_columns.items()})
    remaining = iter(results)
    return [next(remaining) if len(pick.rows) else ScoredCandidates(_NO_SCORES) for pick in picks]


def shown(
    pick: Candidates,
    scores: Scores | None,
    unit: LoadedVersion,
    model_called: bool = False,
    fallback: str | None = None,
    explores: bool = True,
) -> ShownItems:
    """Orders the candidates; without scores the most likely come first."""
    arranged = arrange(pick, scores, unit, explores)
    items = tuple(zip(unit.items[arranged.rows].tolist(), arranged.scores, strict=True))
    return ShownItems(
        items, fallback, model_called, arranged.propensities, _explain(pick, scores, unit, arranged) if pick.request.explain else None
    )


def _explain(pick: Candidates, scores: Scores | None, unit: LoadedVersion, arranged: Arranged) -> AnswerExplanation:
    dropped = {} if pick.before is None else pick.request.filter.dropped(unit, pick.before, pick.request.filter_input)
    return AnswerExplanation(pick.looked, len(pick.rows), scores is not None, arranged.explored, arranged.why, dropped)


def _stranger(request: RankingRequest, unit: LoadedVersion) -> ShownItems:
    """Returns similar or popular items for a user unknown to the version."""
    similar_candidates = alike(request, unit)
    if similar_candidates is not None and len(similar_candidates.rows):
        return shown(similar_candidates, None, unit, fallback=BY_ITEMS)
    return shown(popular(request, unit), None, unit, fallback=UNKNOWN_USER)


def _unscored(pick: Candidates, unit: LoadedVersion, model_called: bool) -> ShownItems:
    """Returns the retrieved candidates in their order, or popular items."""
    if not len(pick.rows):
        return shown(pick, None, unit)
    return shown(pick if pick.retrieved else popular(pick.request, unit), None, unit, model_called, NO_SCORES)


def _calls(picks: Sequence[Candidates], unit: LoadedVersion) -> Iterator[Sequence[Candidates]]:
    """Groups picks that share a call."""
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


def _scored(
    server: Scorer, picks: Sequence[Candidates], unit: LoadedVersion, request_columns: Mapping[str, Array]
) -> list[ScoredCandidates]:
    """Scores the picks with one call. A whole catalogue is sent unfiltered and filtered afterwards: its columns can then be cached."""
    full_catalogue = len(picks) == 1 and not picks[0].retrieved
    rows = [unit.every if full_catalogue else pick.rows for pick in picks]
    ends = np.cumsum([len(request_rows) for request_rows in rows])
    try:
        feed = unit.feed(request_columns) if full_catalogue else unit.feed_of(request_columns, rows)
        patience = picks[0].request.filter.serve.deadlines.score.total_seconds()
        scores = np.asarray(server.score(picks[0].request.recommender, unit.version, feed, patience))
        if scores.shape != (ends[-1],):
            raise Unavailable(f"the model server returned scores of shape {scores.shape} for {ends[-1]} items")
    except Exception as error:
        return [ScoredCandidates(error, model_called=True)] * len(picks)
    parts = np.split(scores, ends[:-1])
    return [ScoredCandidates(_numbers(pick, part, full_catalogue), model_called=True) for pick, part in zip(picks, parts, strict=True)]


def _numbers(pick: Candidates, scores: Scores, full_catalogue: bool) -> Scores | Exception:
    if not np.isfinite(scores).all():
        return Unavailable("the model server returned NaN or infinite scores")
    return scores[pick.rows] if full_catalogue else scores
