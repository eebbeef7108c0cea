"""Port for forgotten users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.domain.forgetting import ForgottenUser, UserDigest


@dataclass(frozen=True)
class ForgottenRows:
    """What the database had of a user. `at`: time of the forgetting, not before the user's newest event."""

    at: datetime
    interactions: int
    impressions: int


class ForgottenUsers(Protocol):
    """Deletes the events of users, and remembers digests of the users. Events up to the time of a forgetting are refused from then on."""

    @property
    def digest(self) -> UserDigest: ...

    def forget(self, recommender: str, key: int, now: Callable[[], datetime]) -> ForgottenRows:
        """Deletes all events of a user, and remembers it. If this fails midway, some rows are deleted, and the user is not remembered.
        `now` is called when `all` waits for this forgetting already."""

    def keys(self, recommender: str) -> Collection[int]:
        """Returns the users who have events in the database."""

    def all(self, recommender: str) -> Sequence[ForgottenUser]:
        """Returns each user with its newest time. Waits for a forgetting under way: users that are not returned get a later time than
        that of the call."""

    def recommenders(self) -> Collection[str]:
        """Returns the recommenders that have forgotten users."""

    def pending(self) -> Collection[str]:
        """Returns the recommenders with forgotten users that the archive of events may still have."""

    def mark_archived(self, recommender: str, users: Mapping[str, datetime]) -> None:
        """Marks users, by digest and time, as removed from the archive of events; not those who were forgotten again later."""

    def unmark_archived(self) -> None:
        """Unmarks all users: archives of events were restored that may be older than the forgetting."""

    def replay(self, recommender: str, users: Sequence[ForgottenUser]) -> None:
        """Remembers users of another ledger, unmarked."""

    def newest(self, recommender: str, until: datetime | None = None) -> datetime | None:
        """Returns the newest time at which a user was forgotten, up to `until`."""
