"""Earnings of each version's answers: hits, conversions, revenue, engagement, clicks by place; in total, by variant, by slice and over
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from services.monitor.catalogues import CatalogueSizes
from shared.contracts.events import FRONT_END, SERVER_AWAY, UNKNOWN_USER
from shared.contracts.spec import RecommenderSpec
from shared.domain.coverage_novelty import LIKES, LOOKED, coverage, novelty
from shared.domain.earned import AnswerGroup, AnswerOutcomes, gathered, sliding, total
from shared.domain.errors import EyasError, Invalid
from shared.domain.slices import KNOWN, NEW
from shared.ports import ArtifactStore, Clock, KpiSource, RecommenderStore, Registry

MOST_POINTS = 500
MOST_STEPS = 2_000
"""Steps of a series, counted separately before they are added up to windows."""
_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Earning:
    earned: AnswerOutcomes
    engagement: float
    """Weights of all positives, per answer."""


@dataclass(frozen=True)
class ItemSpread:
    """Coverage and novelty of the newest answers; None if unknown: the version's files can't be read, or it has shown nothing."""

    looked: int = 0
    coverage: float | None = None
    novelty: float | None = None


@dataclass(frozen=True)
class VersionEarning(Earning):
    variants: Mapping[str, Earning] = field(default_factory=dict)
    slices: Mapping[str, Earning] = field(default_factory=dict)
    spread: ItemSpread = ItemSpread()


@dataclass(frozen=True)
class EarningPoint:
    ends: datetime
    earning: Earning


class Earnings:
    def __init__(self, recommenders: RecommenderStore, registry: Registry, artifacts: ArtifactStore, kpis: KpiSource, clock: Clock) -> None:
        self._recommenders = recommenders
        self._registry = registry
        self._kpis = kpis
        self._clock = clock
        self._sizes = CatalogueSizes(registry, artifacts)

    def of(self, recommender: str, window: timedelta, spread: bool = True) -> Mapping[int, VersionEarning]:
        """Returns earnings by version, in the newest window whose attribution has closed. `spread`: also coverage and novelty."""
        spec = self._recommenders.get(recommender).spec
        attribution = spec.rollout.analysis.attribution
        until = self._clock.now() - attribution
        earnings = {}
        for number in self._numbers(recommender):
            parts = self._kpis.parts(recommender, number, until - window, until, attribution, spec.feedback.conversions())
            if parts:
                earnings[number] = _version(
                    parts, spec, self._spread(recommender, number, until - window, until) if spread else ItemSpread()
                )
        return earnings

    def series(self, recommender: str, window: timedelta, step: timedelta, points: int) -> Mapping[int, Sequence[EarningPoint]]:
        """Returns earnings by version in windows that end a step apart, the last at the newest whole step whose attribution has closed.
        Leaves out windows without answers."""
        width = check_series(window, step, points)
        spec = self._recommenders.get(recommender).spec
        attribution, conversions = spec.rollout.analysis.attribution, spec.feedback.conversions()
        until = _BEGAN + (self._clock.now() - attribution - _BEGAN) // step * step
        ends = [until - step * back for back in reversed(range(points))]
        since = ends[0] - window
        series = {}
        for number in self._numbers(recommender):
            steps = self._kpis.steps(recommender, number, since, until, step, attribution, conversions)
            windows = zip(ends, sliding(steps, width, points), strict=True)
            if steps:
                series[number] = [EarningPoint(end, _earning(earned, spec)) for end, earned in windows if earned.answers]
        return series

    def _numbers(self, recommender: str) -> Sequence[int]:
        return [version.number for version in self._registry.list(recommender)]

    def _spread(self, recommender: str, version: int, since: datetime, until: datetime) -> ItemSpread:
        showings = self._kpis.showings(recommender, version, since, until, LOOKED)
        try:
            size = self._sizes.of(recommender, version)
        except (EyasError, KeyError):  # collected or damaged: serving the version reports it
            return ItemSpread(showings.answers)
        likes = self._kpis.liked(recommender, until, LIKES)
        return ItemSpread(showings.answers, coverage(showings, size), novelty(showings, likes, size))


def check_series(window: timedelta, step: timedelta, points: int) -> int:
    """Returns the number of steps in a window."""
    width, rest = divmod(window, step)
    if rest or not width:
        raise Invalid("step: the window must be a multiple of the step, such as window=1h with step=5m")
    if not 1 <= points <= MOST_POINTS:
        raise Invalid(f"points: expected 1 to {MOST_POINTS}")
    if width + points > MOST_STEPS:
        raise Invalid(f"step: {width + points} steps in all, at most {MOST_STEPS} are allowed: set a longer step or fewer points")
    return width


def _version(parts: Mapping[AnswerGroup, AnswerOutcomes], spec: RecommenderSpec, spread: ItemSpread) -> VersionEarning:
    overall = _earning(total(parts.values()), spec)
    variants = {name: _earning(earned, spec) for name, earned in gathered(parts, lambda part: (part.variant,)).items()}
    slices = {name: _earning(earned, spec) for name, earned in sorted(gathered(parts, _slices).items())}
    return VersionEarning(overall.earned, overall.engagement, variants, slices, spread)


def _slices(part: AnswerGroup) -> Sequence[str]:
    """Returns the slices of a part. Answers of a front end, or while the model server was away, don't show whether the version knows the
    user."""
    fallback = part.fallback or ""
    own = [] if fallback in (FRONT_END, SERVER_AWAY) else [NEW if fallback.startswith(UNKNOWN_USER) else KNOWN]
    return [*own, *part.slices]


def _earning(earned: AnswerOutcomes, spec: RecommenderSpec) -> Earning:
    return Earning(earned, earned.engagement(spec.feedback.weights()))
