"""KPI looks: whether a recommender's hit rate, or its conversion, has fallen or is below a limit.

A look is taken whenever a block of answers has closed, and stands until the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from services.monitor.drift import MeasuredVersion
from shared.contracts.retraining import KpiTrigger
from shared.domain.drift.detectors import LOOKS
from shared.domain.drift.hit_rate_detector import MOST, Block, fall
from shared.domain.drift.rates import below_limit
from shared.domain.drift.reading import DriftLook, DriftReading
from shared.domain.drift.seasons import DAY, KEPT_WEEKS, WEEK, WEEKS_BACK, AnswerHistory, BlockSeries, block_length, seasonal_fall
from shared.domain.sequential_test import VariantSample
from shared.ports import DriftSamples

ONE_MICROSECOND = timedelta(microseconds=1)
_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Era:
    """Time in which a version was the stable one."""

    version: int
    since: datetime
    until: datetime | None = None


@dataclass
class _HitBlocks:
    """Sums of answers in blocks of equal length. The last block ends at `end`."""

    every: timedelta
    end: datetime
    weeks: int
    """Weeks that are kept."""
    series: BlockSeries = field(default_factory=BlockSeries)

    def add(self, samples: Sequence[VariantSample]) -> None:
        for sample in samples:
            self.series.add(sample)
        self.end += len(samples) * self.every
        self.series.forget(max(len(self.series) - self.weeks * WEEK // self.every, 0))


@dataclass
class _SeasonalState:
    """Counted answers of a recommender, of whichever version."""

    served: MeasuredVersion
    question: tuple[timedelta, timedelta]
    """Lengths of a block and of attribution."""
    eras: tuple[Era, ...]
    since: datetime
    """Start of the oldest era."""
    blocks: _HitBlocks
    days: _HitBlocks
    look: DriftLook | None = None
    look_basis: tuple[object, ...] = ()


def _part(since: datetime, closed: datetime, every: timedelta, weeks: int) -> _HitBlocks:
    """Returns a part without blocks, from the first whole block on, or from `weeks` ago."""
    first = _begin(since - ONE_MICROSECOND, every) + every
    return _HitBlocks(every, max(first, _begin(closed, every) - weeks * WEEK), weeks)


def _begin(at: datetime, every: timedelta) -> datetime:
    """Returns the start of the block that holds the time."""
    return _BEGAN + (at - _BEGAN) // every * every


@dataclass(frozen=True)
class _BlockSums:
    """Sums of closed blocks; events after the attribution window change none."""

    question: tuple[MeasuredVersion, timedelta, timedelta]
    closed: int
    sums: Mapping[int, VariantSample]


class HitLooks:
    """Caches the sums of closed blocks; they can be computed again from the events."""

    def __init__(self, sightings: DriftSamples, eras: Callable[[str], Sequence[Era]]) -> None:
        self._sightings = sightings
        self._eras = eras
        self._looks: dict[str, tuple[_BlockSums, KpiTrigger | None, DriftLook | None]] = {}
        self._histories: dict[str, _SeasonalState] = {}

    def newest(self, served: MeasuredVersion, rule: KpiTrigger, attribution: timedelta, now: datetime) -> DriftLook | None:
        """Looks at answers whose attribution window has closed, up to the newest whole block. None while there are too few blocks."""
        if rule.season != "none":
            return self._seasonal(served, rule, attribution, now)
        question = (served, rule.window / LOOKS, attribution)
        closed = (now - attribution - served.since) // question[1]
        if closed < 2:
            return None
        earned, judged_rule, look = self._looks.get(served.recommender, (_BlockSums(question, 0, {}), None, None))
        if earned.question != question:
            earned = _BlockSums(question, 0, {})
        if (earned.closed, judged_rule) != (closed, rule):
            earned = self._closed(earned, closed)
            look = _look(earned, rule)
            self._looks[served.recommender] = (earned, rule, look)
        return look

    def _seasonal(self, served: MeasuredVersion, rule: KpiTrigger, attribution: timedelta, now: datetime) -> DriftLook:
        closed, question = now - attribution, (block_length(rule.window), attribution)
        state = self._histories.get(served.recommender)
        if state is None or (state.served, state.question) != (served, question):
            state = self._histories[served.recommender] = self._begun(state, served, question, closed)
        self._extend(state, closed)
        basis = state.blocks.end, rule
        if state.look is None or state.look_basis != basis:
            state.look, state.look_basis = _seasonal_look(state, rule), basis
        return state.look

    def _begun(
        self, before: _SeasonalState | None, served: MeasuredVersion, question: tuple[timedelta, timedelta], closed: datetime
    ) -> _SeasonalState:
        """Returns the counts of earlier versions if they still count, else no blocks."""
        eras = tuple(self._eras(served.recommender))
        since = min((era.since for era in eras), default=served.since)
        if before is not None and (before.question, before.since) == (question, since):
            return _SeasonalState(served, question, eras, since, before.blocks, before.days)
        parts = (_part(since, closed, every, weeks) for every, weeks in ((question[0], WEEKS_BACK + 1), (DAY, KEPT_WEEKS)))
        return _SeasonalState(served, question, eras, since, next(parts), next(parts))

    def _extend(self, state: _SeasonalState, closed: datetime) -> None:
        attribution = state.question[1]
        for part in (state.blocks, state.days):
            end, begin = _begin(closed, part.every), part.end
            number = (end - begin) // part.every
            if number <= 0:
                continue
            samples = [VariantSample()] * number
            for era in state.eras:
                since, until = max(_begin(era.since, part.every), begin), end
                if era.until is not None:
                    until = min(_begin(era.until, part.every) + part.every, end)
                if since >= until:
                    continue
                sums = self._sightings.blocks(state.served.recommender, era.version, since, until, part.every, attribution)
                first = (since - begin) // part.every
                for place, sample in sums.items():
                    samples[first + place] = samples[first + place].plus(sample)
            part.add(samples)

    def _closed(self, earned: _BlockSums, closed: int) -> _BlockSums:
        served, every, attribution = earned.question
        begin, end = (served.since + number * every for number in (earned.closed, closed))
        new = self._sightings.blocks(served.recommender, served.version, begin, end, every, attribution)
        return _BlockSums(earned.question, closed, {**earned.sums, **{earned.closed + number: sample for number, sample in new.items()}})


def _look(earned: _BlockSums, rule: KpiTrigger) -> DriftLook | None:
    """Compares everything since a block with everything before it, for the version alone."""
    served, every, _ = earned.question
    first = max(earned.closed - MOST, 0)
    before = VariantSample()
    for number, sample in earned.sums.items():
        if number < first:
            before = before.plus(sample)
    blocks = [Block(served.since + (n + 1) * every, earned.sums.get(n, VariantSample())) for n in range(first, earned.closed)]
    falls = [fall(served.version, before, blocks, rule.min_answers, goal) for goal, rate in rule.rates().items() if rate.fall is not None]
    newest = BlockSeries(block.sample for block in blocks[-LOOKS:])
    readings = [reading for look in falls if look is not None for reading in look.readings] + _below(newest, LOOKS, rule)
    return DriftLook(served.version, blocks[-1].until, tuple(readings)) if readings else None


def _seasonal_look(state: _SeasonalState, rule: KpiTrigger) -> DriftLook:
    history = AnswerHistory(state.blocks.end, state.blocks.every, state.blocks.series, state.days.series)
    version, rates = state.served.version, rule.rates()
    falls = [
        seasonal_fall(version, history, rule.season, rule.min_answers, -rate.fall, goal)
        for goal, rate in rates.items()
        if rate.fall is not None
    ]
    readings = [reading for look in falls for reading in look.readings] + _below(history.blocks, DAY // history.every, rule)
    note = next((look.note for look in falls), "waits for a full day of answers") if not readings else ""
    return DriftLook(version, history.until, tuple(readings), note)


def _below(blocks: BlockSeries, number: int, rule: KpiTrigger) -> list[DriftReading]:
    """Compares the newest blocks with limits; returns nothing while there are fewer."""
    if len(blocks) < number:
        return []
    sample, limits = blocks.of(len(blocks) - number, len(blocks)), rule.rates().items()
    readings = (below_limit(sample, goal, rate.min, rule.min_answers) for goal, rate in limits if rate.min is not None)
    return [reading for reading in readings if reading is not None]
