"""Compiles the spec's `serve.order` once per generation: the rules that hold at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.contracts.ordering import Boost, Bury, Campaign, Each, Explore, Order, Pin, Quota, Rule, condition
from shared.domain.entity_ids import IdHash
from shared.domain.expressions import Tree

_NONE = Explore(rate=0.0)


@dataclass(frozen=True)
class MoveRule:
    tree: Tree
    by: float | None
    """Standard deviations of the candidates' scores; None: behind all others."""
    description: str


@dataclass(frozen=True)
class PinnedItem:
    item: int | Tree
    place: int
    """From 0."""
    description: str


@dataclass(frozen=True)
class ShareRule:
    tree: Tree
    at_most: int | None
    at_least: int | None
    description: str


@dataclass(frozen=True)
class Distinct:
    attribute: str
    at_most: int


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules that hold at one time."""

    shifts: Sequence[MoveRule] = ()
    pins: Sequence[PinnedItem] = ()
    """At most one per place; the first one wins."""
    shares: Sequence[ShareRule] = ()
    distinct: Sequence[Distinct] = ()
    diversity: float = 0.0
    explore: Explore = _NONE

    @property
    def plain(self) -> bool:
        """Whether only the scores decide."""
        return not (self.shifts or self.pins or self.shares or self.distinct or self.diversity)


class Ordering:
    def __init__(self, order: Order, ids: IdHash) -> None:
        self._order, self._ids = order, ids
        self._times = sorted({at for campaign in order.campaigns for at in (campaign.start, campaign.until)})
        self._made: tuple[int, Rules] | None = None

    def at(self, now: datetime) -> Rules:
        """Returns the rules; rebuilds them when a campaign starts or ends."""
        era = sum(at <= now for at in self._times)
        made = self._made
        if made is None or made[0] != era:
            self._made = made = (era, self._rules(now))
        return made[1]

    def _rules(self, now: datetime) -> Rules:
        active_rules = list(_active_rules(self._order, now))
        pins: dict[int, PinnedItem] = {}
        for rule, text in active_rules:
            if isinstance(rule, Pin):
                pins.setdefault(rule.at - 1, PinnedItem(self._item(rule), rule.at - 1, text))
        return Rules(
            shifts=tuple(_shift(rule, text) for rule, text in active_rules if isinstance(rule, Boost | Bury)),
            pins=tuple(pins[place] for place in sorted(pins)),
            shares=tuple(
                ShareRule(_tree(rule), rule.at_most, rule.at_least, text) for rule, text in active_rules if isinstance(rule, Quota)
            ),
            distinct=tuple(Distinct(rule.each, rule.at_most) for rule, _ in active_rules if isinstance(rule, Each)),
            diversity=self._order.diversity,
            explore=self._order.explore,
        )

    def _item(self, rule: Pin) -> int | Tree:
        """Returns the pinned item's key, or the rule's condition."""
        item = rule.item
        return _tree(rule) if item is None else self._ids.key(item) if isinstance(item, str) else item


def _active_rules(order: Order, now: datetime) -> Iterable[tuple[Rule, str]]:
    """Returns the active rules with their descriptions for `explain`. Campaigns come first, so that they win."""
    for campaign in order.campaigns:
        if campaign.start <= now < campaign.until:
            yield from ((rule, _words(rule, campaign)) for rule in campaign.rules)
    yield from ((rule, _words(rule, None)) for rule in order.rules)


def _words(rule: Rule, campaign: Campaign | None) -> str:
    match rule:
        case Boost():
            text = f"boosted by {rule.by:g}: {rule.boost}"
        case Bury():
            text = f"buried{'' if rule.by is None else f' by {rule.by:g}'}: {rule.bury}"
        case Pin():
            text = f"pinned at {rule.at}: {rule.pin}"
        case Quota():
            text = f"at least {rule.at_least}: {rule.quota}" if rule.at_least else f"at most {rule.at_most}: {rule.quota}"
        case Each():
            text = f"at most {rule.at_most} of each {rule.each}"
    return f"{text} (campaign '{campaign.name}')" if campaign else text


def _shift(rule: Boost | Bury, text: str) -> MoveRule:
    if isinstance(rule, Boost):
        return MoveRule(_tree(rule), rule.by, text)
    return MoveRule(_tree(rule), None if rule.by is None else -rule.by, text)


def _tree(rule: Rule) -> Tree:
    expression = condition(rule)
    assert expression is not None
    return expression.tree
