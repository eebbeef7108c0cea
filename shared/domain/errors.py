"""Every error that a user can meet: one clear line that says what, where and what to do.

`kind` is stable: it names the problem type of the API and the first word of the CLI's line.
"""

from __future__ import annotations

import errno

_OF_A_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})


class EyasError(Exception):
    """The root: anything of ours that a user may read."""

    kind = "error"
    status = 500
    retry_after: int | None = None
    """Seconds, where trying again can help."""
    faults: tuple[tuple[str, str], ...] = ()
    """Of a document: each field that is wrong, and what is wrong of it."""

    def __init__(self, message: str = "", *, answer: str | None = None) -> None:
        """`answer` is what a client of the API reads instead, where the message names places that are the operator's business."""
        super().__init__(message)
        self.answer = answer or message


def is_disk_fault(error: BaseException) -> bool:
    """Whether a disk took no write, because it is full or broken: one line says all of it, and a traceback nothing more."""
    return isinstance(error, OSError) and error.errno in _OF_A_DISK


def is_explained(error: BaseException) -> bool:
    """Whether the error's own line says what is wrong, so that the log needs no traceback."""
    return isinstance(error, EyasError) or is_disk_fault(error)


class Invalid(EyasError):
    """What was given can't be accepted: the message names the field, column or file."""

    kind = "invalid"
    status = 422


class Malformed(EyasError):
    """It can't be understood at all: a cursor, a header."""

    kind = "malformed"
    status = 400


class Changed(EyasError):
    """It isn't as the caller has seen it: If-Match or If-None-Match says that this matters."""

    kind = "changed"
    status = 412


class Unsupported(Invalid):
    """Known, planned, and not there yet: refused, never accepted and ignored."""

    kind = "not-yet-supported"


class Forbidden(EyasError):
    """The token is good, and its role or its scope isn't enough."""

    kind = "forbidden"
    status = 403


class NotFound(EyasError):
    kind = "not-found"
    status = 404


def no_such(kind: str, id: str) -> NotFound:
    """Said in the same words of what isn't there and of what the asking token doesn't see."""
    return NotFound(f"no {kind} is called '{id}'")


class Conflict(EyasError):
    """Somebody else changed it first, or its state doesn't allow what was asked."""

    kind = "conflict"
    status = 409


class QueueFull(Conflict):
    """As many runs of the recommender wait as may."""

    kind = "queue-full"


class Stale(Conflict):
    """A row has moved on since it was read: whoever reads it again can go on."""


class IllegalTransition(EyasError):
    """A fault of ours: a decision left its transition table."""

    kind = "illegal-transition"


class Unreadable(EyasError):
    """Something stored that this version of the platform can't read: a newer one wrote it, or it is damaged."""

    kind = "unreadable"


class Unavailable(EyasError):
    """A part that is needed doesn't answer: trying again later can help."""

    kind = "unavailable"
    status = 503
    retry_after = 1


class Pending(Unavailable):
    """It goes on meanwhile: the same call tells later what came of it."""


class ServerAway(Unavailable):
    """No model server answers, whichever version is asked for."""


class Damaged(Unavailable):
    """What is stored doesn't match its digest: it is used by nobody until it is put right."""


class BadData(Invalid):
    """A data set that a stage refuses: the message names the file and the column."""

    kind = "bad-data"


class Crowded(EyasError):
    """As many as can be are served already."""

    kind = "crowded"
    status = 429
    retry_after = 10


class Overloaded(Crowded):
    """More is asked than can be answered in time just now."""

    retry_after = 1
