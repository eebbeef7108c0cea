"""HTTP/1.1 with limits, which uvicorn's httptools protocol lacks for heads and for slow clients.

A connection without a token costs at most _HEAD_BYTES and _HEAD_SECONDS. A good request costs only a few attribute assignments more:
connections have no timers, `ConnectionTable.sweep` checks all deadlines once a second.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from services.api.problems import problem
from shared.telemetry import metrics

log = logging.getLogger(__name__)

_HEAD_BYTES = 64 << 10
"""Limit of request line and headers. Tokens have at most 4 KB; proxies add a few KB."""
_ADDRESS_BYTES = 8 << 10
_HEADERS = 100
"""Each header costs parsing and lookups; 100 is also the limit of Apache and Python's own server."""
_HEAD_SECONDS = 10.0
_BODY_SECONDS = 30.0
"""Added to _HEAD_SECONDS for the whole request: a legal body (1 MB) at 35 KB/s."""
_DISCARDED = 1 << 20
"""Bytes of a body that are read after the request was answered (401), so that the client of a legal body sees the answer."""
_WRITE_SECONDS, _WRITTEN = 30.0, 64 << 10
"""A client must take at least that many bytes of a waiting answer in that many seconds."""
_CLOSE_SECONDS = 5.0
"""Limit for the last bytes of an answer that closes the connection."""
_PIECE = 4 << 10
"""Bytes of a head that are parsed at once; the limits of heads are checked between two pieces."""
_CROWDED = 0.9
"""Share of the connection limit above which the log warns."""
_CALM = 10.0
"""Seconds without trouble after which a warning ends."""
_EVICTED_AT_ONCE = 32
"""Connections closed in a sweep that finds no free file descriptor."""


def _answer(kind: str, status: int, detail: str, **headers: str) -> bytes:
    response = problem(kind, status, detail, {"Connection": "close", **headers})
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % pair for pair in response.raw_headers) + b"\r\n" + bytes(response.body)


_BAD = "malformed", _answer("malformed", 400, "this is not an HTTP/1.1 request")
_LINE = "line", _answer("address-too-long", 414, f"the address is longer than {_ADDRESS_BYTES} bytes: send a shorter one")
_HEAD = (
    "headers",
    _answer("headers-too-large", 431, f"more than {_HEADERS} headers, or more than {_HEAD_BYTES} bytes of headers: send fewer"),
)
_UNREAD = "unread body", b""
_SLOW_HEAD = "slow head", _answer("request-timeout", 408, f"the headers were not complete within {_HEAD_SECONDS:g} s")
_SLOW_BODY = (
    "slow body",
    _answer("request-timeout", 408, f"the request was not complete within {_HEAD_SECONDS + _BODY_SECONDS:g} s"),
)
_FULL = "full", _answer("unavailable", 503, "all connections of this process are in use: try again in a second", **{"Retry-After": "1"})


class _ConnectionAlarm:
    """An alarm that starts with the first trouble and ends after a calm time, so that the log has two lines of it."""

    def __init__(self) -> None:
        self._raised = False
        self._last_trouble = -math.inf

    def changed(self, now: float, trouble: bool) -> bool | None:
        """Whether the alarm has now started (True), ended (False), or not changed (None)."""
        if trouble:
            self._last_trouble = now
        raised = now - self._last_trouble < _CALM
        if raised == self._raised:
            return None
        self._raised = raised
        return raised


class ConnectionTable(ServerState):
    """The open connections of one server, their limit, and which may be closed for a new one.

    A connection is a stranger until a request of it has passed the token check. A new connection beyond the limit replaces the stranger
    that has waited longest without a complete request; without a stranger it gets a 503. So clients with a token keep their connections,
    and new clients get in past idle or incomplete requests: a complete request needs its place for milliseconds only.
    """

    def __init__(self, port: str, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._strangers: dict[BoundedProtocol, None] = {}  # longest waiting first
        self._closed = {reason: metrics.HTTP_CLOSED.labels(port, reason) for reason in metrics.HTTP_CLOSED_REASONS}
        metrics.HTTP_CONNECTIONS.labels(port).set_function(lambda: len(self.connections))
        metrics.HTTP_CONNECTIONS_LIMIT.labels(port).set(limit)
        self._port = port
        self._swept: float | None = None
        self._turned_away = self._logged = self._before = 0
        self._crowded, self._exhausted = _ConnectionAlarm(), _ConnectionAlarm()

    def admit(self, connection: BoundedProtocol) -> bool:
        """Admits a new connection, if necessary in place of a stranger. Returns False if the table is full."""
        if len(self.connections) > self._limit and not self._evict():
            self.forget(connection)
            self.count("full")
            self._turned_away += 1
            return False
        self._strangers[connection] = None
        return True

    def wait(self, connection: BoundedProtocol) -> None:
        """The connection waits for a request without having shown a token."""
        self._strangers[connection] = None

    def work(self, connection: BoundedProtocol) -> None:
        """The connection's request is complete: the connection is kept until its answer."""
        self._strangers.pop(connection, None)

    def forget(self, connection: BoundedProtocol) -> None:
        self.connections.discard(cast(Any, connection))
        self._strangers.pop(connection, None)

    def abort(self) -> None:
        """Closes all connections at once."""
        for connection in list(self.connections):
            cast(BoundedProtocol, connection).transport.abort()

    def count(self, reason: str) -> None:
        self._closed[reason].inc()

    def _evict(self) -> bool:
        while self._strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            if not oldest.has_shown_token():
                self.forget(oldest)
                self.count("evicted")
                self._turned_away += 1
                oldest.transport.abort()
                return True
        return False

    def sweep(self, now: float, has_descriptors: bool = True) -> None:
        """Closes connections past their deadline; logs when connections or file descriptors run out, and when that ends."""
        late, self._swept = self._swept is not None and now - self._swept > 3.0, now
        if not late:  # after a pause of the loop, timely data may still be unread
            for connection in list(self.connections):
                cast(BoundedProtocol, connection).check(now)
        if not has_descriptors:
            for _ in range(_EVICTED_AT_ONCE):
                if not self._evict():
                    break
        self._warn(now, has_descriptors)

    def _warn(self, now: float, has_descriptors: bool) -> None:
        count, limit, turned_away = len(self.connections), self._limit, self._turned_away - self._logged
        crowded = self._crowded.changed(now, count >= _CROWDED * limit or turned_away > self._before)
        self._before = turned_away
        if crowded:
            log.warning(
                "connections: near the limit, those without a token are closed first; raise EYAS_CONNECTIONS if these are your clients "
                "port=%s open=%d limit=%d",
                *(self._port, count, limit),
            )
        elif crowded is False:
            log.warning("connections: below the limit again port=%s open=%d limit=%d turned_away=%d", self._port, count, limit, turned_away)
            self._logged, self._before = self._turned_away, 0
        exhausted = self._exhausted.changed(now, not has_descriptors)
        if exhausted:
            log.warning(
                "file descriptors: none left, new connections fail; raise the limit of open files (ulimit -Hn) connections=%d", count
            )
        elif exhausted is False:
            log.warning("file descriptors: free again connections=%d", count)


class BoundedProtocol(HttpToolsProtocol):
    """One connection within the limits of its server's `ConnectionTable`."""

    server_state: ConnectionTable

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ConnectionTable,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url, self.headers = b"", []
        self._head = 0
        """Bytes of the head (request line and headers) read so far; -1 while the body is read."""
        self._deadline = math.inf
        """Deadline of the request being read; infinite between requests, where uvicorn's timer closes idle connections."""
        self._fault: tuple[str, bytes] | None = None
        self._discarded = 0
        self._trusted = False
        self._write_deadline = self._close_deadline = math.inf
        self._unsent = 0

    def has_shown_token(self) -> bool:
        if not self._trusted and self.scope is not None:
            self._trusted = "caller" in self.scope["state"]
        return self._trusted

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.server_state.admit(self):
            self._deadline = self.loop.time() + _HEAD_SECONDS
        else:
            transport.write(_FULL[1])
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._deadline == math.inf:
            self._deadline = self.loop.time() + _HEAD_SECONDS
        if self._head >= 0 and len(data) > _PIECE:
            for start in range(0, len(data), _PIECE):
                if self._head < 0:
                    self._read(data[start:])
                    break
                self._read(data[start : start + _PIECE])
                if self.transport.is_closing():
                    break
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        if self._head >= 0:
            self._head += len(data)
        elif self.cycle.response_complete:
            self._discarded += len(data)
            if self._discarded > _DISCARDED:
                self._refuse(_UNREAD)
                return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is supported: the request is answered as plain HTTP
        except httptools.HttpParserError:
            self._refuse(self._fault or _BAD)
            return
        if self._head > 0:  # not reset by a callback: the head is incomplete
            fault = self._fault_of_head()
            if fault is not None or self._head >= _HEAD_BYTES:
                self._refuse(fault or _HEAD)

    def _fault_of_head(self) -> tuple[str, bytes] | None:
        if len(self.url) > _ADDRESS_BYTES:
            return _LINE
        return _HEAD if len(self.headers) > _HEADERS else None

    def on_headers_complete(self) -> None:
        self._fault = self._fault_of_head()
        if self._fault is not None:
            raise ValueError(self._fault[0])  # stops the parser
        super().on_headers_complete()
        self._head = -1
        if self._deadline == math.inf:  # pipelined: received with the request before
            self._deadline = self.loop.time() + _HEAD_SECONDS
        self._deadline += _BODY_SECONDS

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head = self._discarded = 0
        self._deadline = math.inf
        if not self._trusted and not self.cycle.response_complete:
            self.server_state.work(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._trusted and not self.has_shown_token() and not self.transport.is_closing():
            self.server_state.wait(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._write_deadline = self.loop.time() + _WRITE_SECONDS

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline = math.inf

    def check(self, now: float) -> None:
        """Closes the connection if the client has missed a deadline."""
        if self.transport.is_closing():
            if self._close_deadline == math.inf:
                self._close_deadline = now + _CLOSE_SECONDS
            elif now >= self._close_deadline:
                self._abort("unread answer")
        elif now >= self._write_deadline:
            unsent = self.transport.get_write_buffer_size()
            if self._unsent - unsent < _WRITTEN:
                self._abort("unread answer")
            else:
                self._unsent, self._write_deadline = unsent, now + _WRITE_SECONDS
        elif now >= self._deadline:
            if self.flow.read_paused:  # the server has paused reading: not the client's fault
                self._deadline = now + _HEAD_SECONDS
            else:
                self._refuse(_SLOW_BODY if self._head < 0 else _SLOW_HEAD)

    def _abort(self, reason: str) -> None:
        self.server_state.count(reason)
        self.transport.abort()

    def _refuse(self, fault: tuple[str, bytes]) -> None:
        """Sends the error if no other answer is under way, and closes the connection."""
        reason, answer = fault
        if self.transport.is_closing():
            return
        self.server_state.count(reason)
        cycle = self.cycle
        busy = cycle is not None and not cycle.response_complete
        if busy:
            can_answer = self._head < 0 and not cycle.response_started and not self.pipeline  # this request is still being read
            cycle.disconnected = True  # tells the handler that the client has left
            cycle.message_event.set()
        else:
            can_answer = self._head > 0
        if can_answer:
            self.transport.write(answer)
        self.transport.close()
