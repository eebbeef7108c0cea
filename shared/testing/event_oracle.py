"""Oracle of KPIs: computes the expected KPIs of a set of events, to compare event logs with.

Follows only the port's documentation, and needs memory for all events. The order of the events doesn't matter: answers are sorted first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.contracts.events import Impression, Interaction
from shared.domain.coverage_novelty import ItemShowings
from shared.domain.earned import AnswerGroup, AnswerOutcomes


@dataclass(frozen=True)
class OracleReaction:
    delay: timedelta
    """Time from the answer to the positive; 0 if the positive has an earlier time."""
    place: int
    kind: str | None
    revenue: int


class Oracle:
    """KPIs of a set of impressions and a set of positives; each id counts once."""

    def __init__(self, impressions: Iterable[Impression], positives: Iterable[Interaction], attribution: timedelta) -> None:
        self.answers = {answer.request_id: answer for answer in impressions}
        self._attribution = attribution
        self._of_user: dict[tuple[str, int], list[Impression]] = defaultdict(list)
        for answer in sorted(self.answers.values(), key=lambda answer: (answer.at, answer.request_id), reverse=True):
            self._of_user[answer.recommender, answer.user].append(answer)
        self.reactions: dict[str, list[OracleReaction]] = defaultdict(list)
        self.positives: list[Interaction] = []
        event_ids = set()
        for event in positives:
            if event.id is None or (event.recommender, event.id) not in event_ids:
                event_ids.add((event.recommender, event.id))
                self.positives.append(event)
                self._react(event)

    def earned(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> AnswerOutcomes:
        return self._count(self._answers_between(recommender, version, since, until), attribution, conversions)

    def parts(
        self, recommender: str, version: int, since: datetime, until: datetime, attribution: timedelta, conversions: Collection[str]
    ) -> dict[AnswerGroup, AnswerOutcomes]:
        apart: dict[AnswerGroup, list[Impression]] = defaultdict(list)
        for answer in self._answers_between(recommender, version, since, until):
            apart[AnswerGroup(answer.variant, answer.fallback, answer.slices)].append(answer)
        return {part: self._count(answers, attribution, conversions) for part, answers in apart.items()}

    def window(
        self, recommender: str, version: int, ends: datetime, width: timedelta, attribution: timedelta, conversions: Collection[str]
    ) -> AnswerOutcomes:
        """Returns the KPIs of the answers in the interval of `width` that ends at `ends`."""
        return self.earned(recommender, version, ends - width, ends, attribution, conversions)

    def showings(self, recommender: str, version: int, since: datetime, until: datetime, limit: int) -> ItemShowings:
        newest = sorted(self._answers_between(recommender, version, since, until), key=lambda answer: (answer.at, answer.request_id))[::-1][
            :limit
        ]
        return ItemShowings(len(newest), dict(Counter(item for answer in newest for item in set(answer.items))))

    def liked(self, recommender: str, until: datetime) -> dict[int, int]:
        return dict(
            Counter(
                event.item for event in self.positives if event.recommender == recommender and event.at is not None and event.at < until
            )
        )

    def _answers_between(self, recommender: str, version: int, since: datetime, until: datetime) -> list[Impression]:
        return [
            answer
            for answer in self.answers.values()
            if answer.recommender == recommender and answer.version == version and since <= answer.at and answer.at < until
        ]

    def _count(self, answers: Sequence[Impression], attribution: timedelta, conversions: Collection[str]) -> AnswerOutcomes:
        counted = {answer.request_id: self._within(answer, attribution) for answer in answers}
        all_of_them = [reaction for reactions in counted.values() for reaction in reactions]
        return AnswerOutcomes(
            answers=len(answers),
            hits=len([reactions for reactions in counted.values() if reactions]),
            conversions=len([name for name, reactions in counted.items() if {reaction.kind for reaction in reactions} & set(conversions)]),
            revenue=sum(reaction.revenue for reaction in all_of_them),
            kinds=dict(Counter(reaction.kind for reaction in all_of_them if reaction.kind is not None)),
            shown=dict(Counter(len(answer.items) for answer in answers)),
            clicked=dict(Counter(place for reactions in counted.values() for place in {reaction.place for reaction in reactions})),
        )

    def _within(self, answer: Impression, attribution: timedelta) -> Sequence[OracleReaction]:
        return [reaction for reaction in self.reactions.get(answer.request_id, ()) if reaction.delay <= attribution]

    def _react(self, event: Interaction) -> None:
        assert event.at is not None
        named = self.answers.get(event.request_id or "")
        if named and named.recommender == event.recommender and named.user == event.user and event.item in named.items:
            answer = named
        else:
            candidates = (
                answer
                for answer in self._of_user.get((event.recommender, event.user), ())
                if answer.at <= event.at and event.at - answer.at <= self._attribution and event.item in answer.items
            )
            newest = next(candidates, None)
            if newest is None:
                return
            answer = newest
        delay = max(event.at - answer.at, timedelta(0))
        revenue = round((event.revenue or 0.0) * 1_000_000)
        self.reactions[answer.request_id].append(OracleReaction(delay, answer.items.index(event.item), event.kind, revenue))
