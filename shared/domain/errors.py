"""Errors that users can meet. Each message is one line: what is wrong, where, and what to do.

`kind` is stable: the problem type of the API and the first word of the CLI's error line.
"""

from __future__ import annotations

import errno

_OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


class EyasError(Exception):
    """Base class of all errors that a user may read."""

    kind = "error"
    status = 500
    retry_after: int | None = None
    """Seconds after which a retry can succeed."""
    faults: tuple[tuple[str, str], ...] = ()
    """Faults of a document: each wrong field and its message."""

    def __init__(self, message: str = "", *, answer: str | None = None) -> None:
        """`answer` replaces the message for clients of the API, if the message names internal locations."""
        super().__init__(message)
        self.answer = answer or message


def is_disk_fault(error: BaseException) -> bool:
    """Returns whether a disk rejected a write because it is full or broken; such an error needs no traceback."""
    return isinstance(error, OSError) and error.errno in _OF_A_DISK


def is_explained(error: BaseException) -> bool:
    """Returns whether the error's message is enough, so that the log needs no traceback."""
    return isinstance(error, EyasError) or is_disk_fault(error)


class Invalid(EyasError):
    """Invalid input; the message names the field, column or file."""

    kind = "invalid"
    status = 422


class Malformed(EyasError):
    """Input that cannot be parsed, such as a cursor or a header."""

    kind = "malformed"
    status = 400


class Changed(EyasError):
    """The resource changed since the caller read it (If-Match or If-None-Match failed)."""

    kind = "changed"
    status = 412


class Unsupported(Invalid):
    """Planned feature that does not exist yet: it is rejected, not silently ignored."""

    kind = "not-yet-supported"


class Unauthenticated(EyasError):
    """Missing or invalid token, session or JWT. `reason` is the label of the metric."""

    kind = "unauthenticated"
    status = 401

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Forbidden(EyasError):
    """Valid token whose role or scope is not sufficient."""

    kind = "forbidden"
    status = 403


class NotFound(EyasError):
    kind = "not-found"
    status = 404


def no_such(kind: str, id: str) -> NotFound:
    """Uses the same message for a resource that does not exist and for one outside the token's scope."""
    return NotFound(f"no {kind} is called '{id}'")


class Conflict(EyasError):
    """Another writer was first, or the resource's state does not allow the request."""

    kind = "conflict"
    status = 409


class QueueFull(Conflict):
    """The recommender has the maximum number of waiting runs."""

    kind = "queue-full"


class Stale(Conflict):
    """A row changed since it was read; read it again and retry."""


class IllegalTransition(EyasError):
    """Internal error: a decision made a transition that its table does not have."""

    kind = "illegal-transition"


class Unreadable(EyasError):
    """Stored data that this version of the platform cannot read: a newer version wrote it, or it is damaged."""

    kind = "unreadable"


class Unavailable(EyasError):
    """A required component does not respond; a later retry can succeed."""

    kind = "unavailable"
    status = 503
    retry_after = 1


class Pending(Unavailable):
    """The operation continues; the same call returns the result later."""


class ServerAway(Unavailable):
    """No model server responds, for any version."""


class Damaged(Unavailable):
    """Stored data does not match its digest, so nothing uses it until it is repaired."""


class BadData(Invalid):
    """Data set that a stage rejects; the message names the file and the column."""

    kind = "bad-data"


class Crowded(EyasError):
    """A limit on streams or on the request rate is reached."""

    kind = "crowded"
    status = 429
    retry_after = 10


class Overloaded(Crowded):
    """More requests than can be answered in time."""

    retry_after = 1
