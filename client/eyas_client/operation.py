"""Operations: methods that are written once, as steps without I/O, and run by `Client` directly and by `AsyncClient` as coroutines.

An operation returns steps: a `Request`, or a generator of requests and pauses. A client performs each step and sends its outcome back.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from eyas_client.errors import refused, unanswered, unexpected

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
M = TypeVar("M")
P = ParamSpec("P")

JSON = "application/json"
Outcome = httpx.Response | httpx.HTTPError | None
"""None after a pause."""


class Steps(Protocol[T_co]):
    def __iter__(self) -> Generator[Action, Outcome, T_co]: ...


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Request(Generic[T]):
    """Request, and the type of its answer. `repeatable`: it may be sent again when it is not known whether it took effect."""

    method: str
    path: str
    answer: type[T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    media: str = JSON
    key: str | None = None
    repeatable: bool = True

    def headers(self) -> dict[str, str]:
        media = {} if self.body is None else {"Content-Type": self.media}
        return media if self.key is None else {**media, "Idempotency-Key": self.key}

    def __iter__(self) -> Generator[Action, Outcome, T]:
        outcome = yield self
        if isinstance(outcome, httpx.HTTPError):
            raise unanswered(outcome)
        assert outcome is not None
        if not outcome.is_success:
            raise refused(outcome)
        answer, reason = _read(outcome.content, self.answer)
        if reason:
            raise unexpected(outcome, reason)
        return cast(T, answer)


Action = Request[Any] | Pause
StepGenerator: TypeAlias = Generator[Action, Outcome, T]


def _read(content: bytes, answer: type[T]) -> tuple[T | None, str]:
    """Returns the answer, or what is wrong with it."""
    try:
        return TypeAdapter(answer).validate_json(content or b"null"), ""
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        return None, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"


def get(path: str, answer: type[T], **query: Any) -> Request[T]:
    return Request("GET", path, answer, {name: value for name, value in query.items() if value is not None})


def post(path: str, answer: type[T], body: Any = None, **query: Any) -> Request[T]:
    """A POST with an idempotency key, so that it acts once however often it is sent."""
    return Request("POST", path, answer, query, encode(body or {}), key=uuid.uuid4().hex)


def encode(value: Any) -> bytes:
    """JSON; numbers and arrays of NumPy, and times, are allowed."""
    return to_json(value, fallback=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def segment(value: object) -> str:
    """Quotes a name or id, so that it stays one segment of a path."""
    text = str(value)
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) == {"."} else quoted


class Sync:
    """Marks the methods of `Client`: they return answers."""


class Async:
    """Marks the methods of `AsyncClient`: they return coroutines."""


class Group(Generic[M]):
    """Operations on one kind of object."""

    def __init__(self, run: Callable[[Steps[Any]], Any]) -> None:
        self._run = run


class Operation(Generic[P, T]):
    """Method of a group: returns the answer in a `Client`, and a coroutine of it in an `AsyncClient`."""

    def __init__(self, function: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__
        signature = inspect.signature(function)
        answer = re.sub(r"^\w+\[(.*)\]$", r"\1", str(signature.return_annotation))  # Request[Run]: Run
        self._signature = signature.replace(return_annotation=answer)

    @overload
    def __get__(self, group: Group[Sync], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Group[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, group: None, owner: type) -> Operation[P, T]: ...
    def __get__(self, group: Group[Any] | None, owner: type) -> Any:
        if group is None:
            return self

        @wraps(self._function)
        def method(group: Group[Any], *args: P.args, **kwargs: P.kwargs) -> Any:
            return group._run(self._function(group, *args, **kwargs))

        method.__signature__ = self._signature  # type: ignore[attr-defined]
        return MethodType(method, group)
