"""Between a control plane and the world: lines of JSON on a socket, and a clock in memory that both see."""

from __future__ import annotations

import json
import mmap
import socket
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """The world's time, in memory shared with whoever is forked later; only the world moves it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=struct.unpack("q", self._memory[:8])[0])

    def set(self, now: datetime) -> None:
        self._memory[:8] = struct.pack("q", (now - _EPOCH) // timedelta(microseconds=1))


class Wire:
    """One end. Lines are whole: a sender that dies in the middle of one is a sender that said nothing."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._rest = b""
        self._lines: list[bytes] = []

    def send(self, **words: Any) -> None:
        self.socket.sendall(json.dumps(words).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next line; None at the end."""
        while not self._lines:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            *lines, self._rest = (self._rest + more).split(b"\n")
            self._lines += lines
        found: dict[str, Any] = json.loads(self._lines.pop(0))
        return found

    def ask(self, **words: Any) -> dict[str, Any]:
        self.send(**words)
        answer = self.receive()
        if answer is None:
            raise SystemExit("the world is gone")
        return answer

    @property
    def more(self) -> bool:
        return bool(self._lines)

    def close(self) -> None:
        self.socket.close()


class Local(Wire):
    """Both ends in one process: an answer is there as soon as something is asked."""

    def __init__(self, answer: Callable[[Wire, dict[str, Any]], None]) -> None:
        self._answer = answer
        self._said: dict[str, Any] = {}

    def ask(self, **words: Any) -> dict[str, Any]:
        self._answer(self, words)
        return self._said

    def send(self, **words: Any) -> None:
        self._said = words


def pair() -> tuple[Wire, Wire]:
    ours, theirs = socket.socketpair()
    return Wire(ours), Wire(theirs)
