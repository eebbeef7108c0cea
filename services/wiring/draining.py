"""A server that drains before it ends: for a while it answers as not ready and closes connections after their answers.

A cluster ends a pod and updates its load balancers at the same moment, but load balancers react later. Late requests are still answered;
a kept connection gets `Connection: close`, so its client's next request goes elsewhere.
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
    """SIGTERM starts draining; a second SIGTERM, or SIGINT, ends the server at once."""

    def __init__(self, app: ASGIApp, limit: int, metrics: socket.socket, patience: timedelta | None) -> None:
        # Longer than load balancers keep idle connections: they must close first, or a new request may meet a closing connection.
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
