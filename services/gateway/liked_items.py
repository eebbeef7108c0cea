"""What users liked, from the event log, in one read: the items that a filter drops, and the newest items that a version reads.

While the log is away or slow, nothing is dropped, and versions use what they learned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.gateway.impression_writer import ImpressionWriter
from services.gateway.snapshot import ServedRecommender

Likes = tuple[tuple[int, datetime], ...]


@dataclass(frozen=True)
class LikedItems:
    """A user's likes."""

    dropped: Collection[int] = ()
    """Items that the filter drops."""
    recent: Likes = ()
    """The newest likes since the training of the oldest served version, the newest last."""


NOTHING = LikedItems()


def read_likes(
    journal: ImpressionWriter, name: str, served: ServedRecommender, users: Collection[int], now: datetime
) -> Mapping[int, LikedItems]:
    """Returns the likes of users that have any. Reads nothing if neither the filter nor a version needs it."""
    filter, count = served.filter, served.filter.serve.recent_items
    learned = [unit.learned_until for unit in served.units.values() if count and unit.session is not None]
    begins = [*([filter.since(now)] if filter.drops_seen else []), *learned]
    if not begins:
        return {}
    since = None if None in begins else min(begin for begin in begins if begin is not None)
    likes = journal.seen_items(name, users, since, filter.serve.deadlines.seen.total_seconds())
    return {user: _sorted(items, served, now, count if learned else 0) for user, items in likes.items()}


def _sorted(items: Mapping[int, datetime], served: ServedRecommender, now: datetime, count: int) -> LikedItems:
    filter = served.filter
    from_ = filter.since(now)
    dropped: Collection[int] = ()
    if filter.drops_seen:
        dropped = items.keys() if from_ is None else [item for item, at in items.items() if at >= from_]
    return LikedItems(dropped, tuple(sorted(items.items(), key=lambda like: like[1])[-count:]) if count else ())
