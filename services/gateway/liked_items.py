"""What users liked, from the event log, in one read: the items that a filter drops, and the newest items that a version reads.

While the log is away or slow, nothing is dropped, and versions use what they learned. Without a filter of seen items, an answer waits no
longer for likes than for user features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.gateway.impression_writer import ImpressionWriter
from services.gateway.loaded_version import LoadedVersion
from services.gateway.snapshot import ServedRecommender

Likes = tuple[tuple[int, datetime], ...]


@dataclass(frozen=True)
class LikedItems:
    """A user's likes."""

    dropped: Collection[int] = ()
    """Items that the filter drops."""
    recent: Likes = ()
    """The newest likes, the newest last."""


NOTHING = LikedItems()


def read_likes(
    journal: ImpressionWriter,
    name: str,
    served: ServedRecommender,
    users: Collection[int],
    now: datetime,
    units: Collection[LoadedVersion] | None = None,
) -> Mapping[int, LikedItems]:
    """Returns the likes of users that have any. Reads nothing if neither the filter nor a version needs it.

    `units`: only what these versions read, and nothing for the filter; all served versions and the filter if absent."""
    filter, count = served.filter, served.filter.serve.recent_items
    drops, deadlines = filter.drops_seen and units is None, filter.serve.deadlines
    reading = [unit for unit in (served.units.values() if units is None else units) if count and unit.reads_likes]
    begins = [*([filter.since(now)] if drops else []), *(_begin(unit, users) for unit in reading)]
    if not begins:
        return {}
    since = None if None in begins else min(begin for begin in begins if begin is not None)
    patience = deadlines.seen if drops else deadlines.features  # without the filter, an answer is complete without likes
    likes = journal.seen_items(name, users, since, patience.total_seconds(), counted=drops)
    return {user: _sorted(items, drops, filter.since(now), count if reading else 0) for user, items in likes.items()}


def _begin(unit: LoadedVersion, users: Collection[int]) -> datetime | None:
    """Returns the time from which the version needs likes of these users; None: all likes."""
    return unit.learned_until if all(unit.knows(user) for user in users) else None


def _sorted(items: Mapping[int, datetime], drops: bool, since: datetime | None, count: int) -> LikedItems:
    dropped: Collection[int] = ()
    if drops:
        dropped = items.keys() if since is None else [item for item, at in items.items() if at >= since]
    newest = sorted(items.items(), key=lambda like: (like[1], like[0]))
    return LikedItems(dropped, tuple(newest[-count:]) if count else ())
