"""A server that says goodbye before it goes: asked to end, it still answers for a while, as not ready, and closes connections politely.

A cluster tells a pod to end and its load balancers to leave it out at the same moment, and they hear it later. Who still comes is answered;
who comes on a connection that was kept is answered with `Connection: close`, and goes elsewhere with the next request.
"""

from __future__ import annotations

import signal
import socket
import time
from datetime import timedelta
from types import FrameType

from starlette.types import ASGIApp

from services.wiring.http_server import BoundedServer

_CLOSE = (b"connection", b"close")


class DrainingServer(BoundedServer):
    """SIGTERM begins the goodbye; a second one, or SIGINT, ends it at once."""

    def __init__(self, app: ASGIApp, limit: int, metrics: socket.socket, patience: timedelta | None) -> None:
        # Longer than load balancers keep a connection that nobody uses: who closes first must not be who is just being asked.
        super().__init__(app, limit, metrics, timeout_graceful_shutdown=10, timeout_keep_alive=75)
        self._patience = patience.total_seconds() if patience else 0.0
        self._ends: float | None = None

    @property
    def leaving(self) -> bool:
        return self._ends is not None or self.should_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self.leaving or not self._patience:
            super().handle_exit(sig, frame)
            return
        self._ends = time.monotonic() + self._patience
        self.config.encoded_headers = [*self.config.encoded_headers, _CLOSE]
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]

    async def on_tick(self, counter: int) -> bool:
        if self._ends is not None and time.monotonic() >= self._ends:
            self.should_exit = True
        return await super().on_tick(counter)
