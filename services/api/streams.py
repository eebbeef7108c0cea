"""Server-sent events: a run's changes of state and its log, as they come.

A listener holds no thread: its stream polls in a thread that is given back at once. The token is looked up again every few seconds, so that
a revoked token receives nothing more. A stream that ends without `end` (the platform stops, the network breaks) goes on by `Last-Event-ID`,
which browsers' EventSource sends by itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Protocol

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.problems import answer_of
from services.api.runs import attempt_of, newest_stage
from services.api.views import EventView
from shared.contracts.stage import StageName
from shared.domain.access import Role
from shared.domain.errors import Crowded, EyasError, Malformed
from shared.domain.run import STAGES
from shared.ports import RunRecord

room = RoleRouter("runs")

MOST = 100
POLL = 0.5
RECHECK = 5.0
HEARTBEAT = 10.0
_PAGE = 100
_LINES = 20
_PIECES = 16
_LINE = 8192
_ATTEMPT = re.compile(r"[a-z0-9]{1,60}-[a-z]{1,20}-[0-9]{1,18}")
_UNFINISHED = frozenset({"pending", *STAGES})

LastEvent = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=200, description="Id of the last event that was read: the stream continues after it."),
]


class Listeners:
    """Limits the concurrent streams of a process."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self.count = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        if self.count >= self.most:
            raise Crowded(f"{self.most} streams are open, which is the limit: try again later, or read without a stream")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class EventStream(StreamingResponse):
    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str], listeners: Listeners) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._events = events
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listeners.place():
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._events.aclose()


class EventPoll(Protocol):
    """Returns new events, whether the end is reached, and whether more can be read at once."""

    def __call__(self) -> tuple[list[str], bool, bool]: ...


@room.get("/v1/runs/{id}/stream", Role.VIEWER, operation_id="stream_run", status_code=200, response_class=EventStream)
def stream_run(parts: With, who: Who, id: str, request: Request, last: LastEvent = None) -> EventStream:
    """Streams a run as server-sent events: `state` for each change of state, the past ones first; `log` with the newest lines of the
    current stage; `end` when the run has ended. Continue a stream without `end` by `Last-Event-ID`; `problem` has the reason, if there is
    one."""
    who.row("run", parts.runs, id)
    return _stream(request, who, _Changes(parts, id, _number(last)))


@room.get("/v1/runs/{id}/logs/stream", Role.VIEWER, operation_id="stream_run_log", status_code=200, response_class=EventStream)
def stream_run_log(
    parts: With,
    who: Who,
    id: str,
    request: Request,
    stage: Annotated[StageName | None, Query(description="Only this stage, to its end; when absent, all from the active one on.")] = None,
    last: LastEvent = None,
) -> EventStream:
    """Streams a log as server-sent events: `log` with all that the stage writes; `end` when the stage, or the run, has ended."""
    who.row("run", parts.runs, id)
    return _stream(request, who, _Text(parts, id, stage, last))


def _stream(request: Request, who: Caller, look: EventPoll) -> EventStream:
    return EventStream(_stream_events(look, who, request.app.state.closing), request.app.state.listeners)


async def _stream_events(look: EventPoll, who: Caller, closing: Callable[[], bool]) -> AsyncGenerator[str]:
    yield "retry: 2000\n\n"
    spoke = checked = time.monotonic()
    while not closing():
        try:
            if time.monotonic() - checked >= RECHECK:
                await who.again()
                checked = time.monotonic()
            events, ended, more = await run_in_threadpool(look)
        except EyasError as error:
            yield _event("problem", {"detail": answer_of(error)})
            return
        for event in events:
            yield event
        if ended:
            return
        if events:
            spoke = time.monotonic()
        elif time.monotonic() - spoke >= HEARTBEAT:
            yield ": still here\n\n"
            spoke = time.monotonic()
        await asyncio.sleep(0 if more else POLL)


def _event(name: str, data: Any, id: str | int | None = None) -> str:
    """Formats an event: JSON has no line breaks of its own, so one `data` line holds it."""
    return ("" if id is None else f"id: {id}\n") + f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _end(record: RunRecord) -> str:
    return _event("end", {"state": record.status.state, "reason": record.status.reason})


class _Changes:
    """History of a run from an entry on, and the last lines of the current stage."""

    def __init__(self, parts: ControlParts, id: str, seq: int | None) -> None:
        self._parts, self._id, self._seq = parts, id, seq
        self._attempt: str | None = None
        self._offset, self._rest = 0, ""

    def __call__(self) -> tuple[list[str], bool, bool]:
        record = self._parts.runs.get(self._id)  # before its history, so that no entry is missed after the end
        entries = self._parts.runs.history(self._id, _PAGE, self._seq)
        events = [_event("state", EventView.of(entry).model_dump(mode="json"), entry.seq) for entry in entries]
        if entries:
            self._seq = entries[-1].seq
        if len(entries) == _PAGE:
            return events, False, True
        events += self._lines(record)
        ended = record.status.state not in _UNFINISHED
        return ([*events, _end(record)] if ended else events), ended, False

    def _lines(self, record: RunRecord) -> list[str]:
        stage = record.status.state if record.status.state in STAGES else None
        attempt = attempt_of(record, stage) if stage else None
        if attempt is None or stage is None:
            return []
        if attempt != self._attempt:
            self._attempt, self._offset, self._rest = attempt, 0, ""
        try:
            text, self._offset, _ = _piece(self._parts, attempt, self._offset)
        except EyasError:  # requests for the log report the fault; changes of state go on without it
            return []
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > _LINE:
            lines, self._rest = [*lines, self._rest], ""
        return [_event("log", {"stage": stage, "attempt": attempt, "lines": lines[-_LINES:]})] if lines else []


class _Text:
    """Whole log of a stage, or of all stages in order."""

    def __init__(self, parts: ControlParts, id: str, stage: str | None, last: str | None) -> None:
        self._parts, self._id, self._stage = parts, id, stage
        self._attempt, self._offset = _place(id, stage, last)

    def __call__(self) -> tuple[list[str], bool, bool]:
        record = self._parts.runs.get(self._id)  # before the text, so that none is missed after the end
        status = record.status
        events: list[str] = []
        for attempt in self._next(record):
            if attempt != self._attempt:
                self._attempt, self._offset = attempt, 0
            text, more = self._read(attempt)
            events += text
            if more:
                return events, False, True
        done = self._stage is not None and any(completed.stage == self._stage for completed in status.stages)
        if done or status.state not in _UNFINISHED:
            return [*events, _end(record)], True, False
        return events, False, False

    def _next(self, record: RunRecord) -> list[str]:
        """Returns the attempt that was read last, for its rest, and the attempts since: a stage may end between two polls."""
        status = record.status
        stage = self._stage or newest_stage(record)
        newest = attempt_of(record, stage) if stage else None
        chain = [] if self._stage else [completed.attempt for completed in status.stages if completed.attempt.startswith(f"{self._id}-")]
        if newest is not None and newest not in chain:
            chain.append(newest)
        if self._attempt is None:
            return chain[-1:]
        if self._attempt in chain:
            return chain[chain.index(self._attempt) :]
        before = [completed.stage for completed in status.stages]
        stage = self._attempt.split("-")[-2]
        return [self._attempt, *chain[before.index(stage) if stage in before and not self._stage else -1 :]]

    def _read(self, attempt: str) -> tuple[list[str], bool]:
        text, self._offset, more = _piece(self._parts, attempt, self._offset)
        data = {"stage": attempt.split("-")[-2], "attempt": attempt, "text": text, "next": self._offset}
        return ([_event("log", data, f"{attempt}:{self._offset}")] if text else []), more


def _piece(parts: ControlParts, attempt: str, offset: int) -> tuple[str, int, bool]:
    """Returns the text from an offset on, as far as one poll reads, the next offset, and whether there is more."""
    texts: list[str] = []
    for _ in range(_PIECES):
        text, following = parts.executor.log(attempt, offset)
        texts.append(text)
        if following <= offset:
            return "".join(texts), offset, False
        offset = following
    return "".join(texts), offset, True


def _number(last: str | None) -> int | None:
    if last is None:
        return None
    if not _small(last):
        raise Malformed("Last-Event-ID: not an event id of this stream; start again without it")
    return int(last)


def _place(run: str, wanted: str | None, last: str | None) -> tuple[str | None, int]:
    """Accepts only attempts of this run, because the id comes from outside; a stage reused from another run is read from its start."""
    if last is None:
        return None, 0
    attempt, _, offset = last.rpartition(":")
    stage, _, number = attempt.removeprefix(f"{run}-").partition("-")
    if not _ATTEMPT.fullmatch(attempt) or not _small(offset):
        raise Malformed("Last-Event-ID: not an event id of this stream; start again without it")
    if not attempt.startswith(f"{run}-") or stage not in STAGES or not _small(number) or wanted not in (None, stage):
        return None, 0
    return attempt, int(offset)


def _small(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
