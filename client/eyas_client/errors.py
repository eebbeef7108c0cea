"""Errors of the client: one class by group of problems (RFC 9457). A message has one line, and never the token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx


class EyasError(Exception):
    """Request without success. `status` is None if no answer came; `type` is the stable address of the problem's kind."""

    def __init__(
        self, detail: str, *, status: int | None = None, type: str = "", title: str = "", errors: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.detail = " ".join(detail.split())
        super().__init__(self.detail)
        self.status = status
        self.type = type
        self.title = title
        self.errors = list(errors)
        """Invalid fields of the request: `field` and `message` of each."""

    @property
    def kind(self) -> str:
        return self.type.rsplit("/", 1)[-1]

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.kind else self.detail


class NotFound(EyasError):
    """There is no such object: status 404."""


class Conflict(EyasError):
    """The state of the object does not allow it: status 409 or 412."""


class Invalid(EyasError):
    """The request is wrong: status 400, 413, 415 or 422."""


class Denied(EyasError):
    """The token is missing or invalid, or its role does not allow it: status 401 or 403."""


class Unavailable(EyasError):
    """The platform does not answer, or cannot now: no connection, or status 429, 502, 503 or 504."""


class Unsuccessful(EyasError):
    """A run or rollout ended without success. `outcome` is its last state."""

    outcome: Any = None


class WaitTimeout(EyasError, TimeoutError):
    """A run or rollout did not end in time; it goes on."""


_CLASSES: dict[int, type[EyasError]] = {
    **dict.fromkeys((404,), NotFound),
    **dict.fromkeys((409, 412), Conflict),
    **dict.fromkeys((400, 413, 415, 422), Invalid),
    **dict.fromkeys((401, 403), Denied),
    **dict.fromkeys((429, 502, 503, 504), Unavailable),
}


def refused(response: httpx.Response) -> EyasError:
    """Returns the error of an answer without success."""
    status = response.status_code
    error_class = _CLASSES.get(status, EyasError)
    try:
        problem = response.json()
        texts = {name: str(problem[name]) for name in ("type", "title", "detail")}
        errors = [dict(fault) for fault in problem.get("errors", ())]
    except (ValueError, KeyError, TypeError, AttributeError):
        detail = f"{place(response.request)} answered {status} without a problem document: is it an Eyas platform?"
        return error_class(detail, status=status)
    if status == 401:
        texts["detail"] += "; set a valid token by token=, EYAS_TOKEN or EYAS_TOKEN_FILE"
    return error_class(**texts, status=status, errors=errors)


def unanswered(error: httpx.HTTPError) -> EyasError:
    """Returns the error of a request that got no answer. A protocol error's text can quote a header, so only its name is told."""
    request = error.request
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        reason = f" ({error})" if str(error) else ""
        return Unavailable(
            f"{place(request)}: nothing answers{reason}; start the platform with `eyas up`, or set its address by url= or EYAS_URL"
        )
    if isinstance(error, httpx.TimeoutException):
        return Unavailable(f"{place(request)} did not answer {request.method} {path(request)} in time; it may still take effect")
    return Unavailable(f"{place(request)}: {request.method} {path(request)} failed: {type(error).__name__}")


def unexpected(response: httpx.Response, reason: str) -> EyasError:
    request = response.request
    return EyasError(f"{place(request)}: unexpected answer of {path(request)}: {reason}; is it an Eyas platform of this version?")


def path(request: httpx.Request) -> str:
    return request.url.raw_path.decode("ascii").partition("?")[0]


def place(request: httpx.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
