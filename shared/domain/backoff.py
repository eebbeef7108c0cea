"""Backoff of retraining: the pause grows with each retraining in a row that does not help, so that a trigger cannot loop.

The effect of a retraining is known only later. So each retraining that a measurement triggered counts as not helpful until a quiet period
as long as its pause has passed.
"""

from __future__ import annotations

from datetime import timedelta

MEASURED = frozenset({"drift", "kpi", "alert"})
"""Triggers that report a problem; a promoted version should end that problem."""
BY_ITSELF = frozenset({"manual", "schedule"})
"""Triggers without backoff: a person or the calendar decides."""
FOLLOW_UP = "follow_up"
"""A retraining that follows a measured one; it gives no information about whether the measured one helped."""

_SHORTEST = timedelta(minutes=1)
_LONGEST = timedelta(days=7)


def counted(fruitless: int, trigger: str, promoted: bool) -> int:
    """Returns how many retrainings in a row have not helped, when one of them ends."""
    if trigger == FOLLOW_UP and promoted:
        return fruitless
    if trigger in BY_ITSELF:
        return 0 if promoted else fruitless
    if promoted and trigger not in MEASURED:
        return 0
    return fruitless + 1


def pause(cooldown: timedelta, fruitless: int) -> timedelta:
    """Returns the cooldown after the first retraining, doubled for each further one, up to a week."""
    if fruitless <= 1:
        return cooldown
    longest = max(cooldown, _LONGEST)
    times: int = 2 ** min(fruitless - 1, 20)
    return min(max(cooldown, _SHORTEST) * times, longest)
