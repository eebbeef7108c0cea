"""A retraining that doesn't help doesn't loop: the pause grows with each one in a row, and then people are told instead.

Whether a retraining has helped shows late. So each one that a measurement asked for counts as one that hasn't, until it has been
calm for as long again as its pause lasted.
"""

from __future__ import annotations

from datetime import timedelta

MEASURED = frozenset({"drift", "kpi", "alert"})
"""Triggers that say that something is wrong; a promoted version should end what they measured."""
BY_ITSELF = frozenset({"manual", "schedule"})
"""Not to be held back: a person decides, or the calendar does."""
FOLLOW_UP = "follow_up"
"""A retraining after one that a measurement asked for: it says nothing about whether that one has helped."""

_SHORTEST = timedelta(minutes=1)
_LONGEST = timedelta(days=7)


def counted(fruitless: int, trigger: str, promoted: bool) -> int:
    """How many in a row haven't helped, as far as is known when one ends."""
    if trigger == FOLLOW_UP and promoted:
        return fruitless
    if trigger in BY_ITSELF:
        return 0 if promoted else fruitless
    if promoted and trigger not in MEASURED:
        return 0
    return fruitless + 1


def pause(cooldown: timedelta, fruitless: int) -> timedelta:
    """The cooldown after the first one, and twice as long after each more, up to a week."""
    if fruitless <= 1:
        return cooldown
    longest = max(cooldown, _LONGEST)
    times: int = 2 ** min(fruitless - 1, 20)
    return min(max(cooldown, _SHORTEST) * times, longest)
