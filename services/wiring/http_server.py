"""The HTTP servers of a process: the API and `/metrics`, both within the limits of `http_protocol`."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from prometheus_client import make_asgi_app
from starlette.types import ASGIApp

from services.wiring.http_protocol import BoundedProtocol, ConnectionTable

log = logging.getLogger(__name__)

_FILES = 65_536
"""Open files that are wanted. A hard limit may be a billion, which is too many for programs that close each possible descriptor."""
_OTHER_FILES = 256
"""At least so many are left to databases, Triton, stages and files, and a quarter of all where that is more."""
_FEWEST = 16
_SCRAPERS = 64
"""Connections of /metrics: a few Prometheus servers scrape it."""


class BoundedServer(uvicorn.Server):
    """`port` names it in the metrics, `limit` bounds its connections; with `watch_files` it warns when file descriptors run out."""

    def __init__(self, app: ASGIApp, port: str, limit: int, watch_files: bool = False, **config: Any) -> None:
        super().__init__(uvicorn.Config(app, http=BoundedProtocol, ws="none", log_config=None, access_log=False, **config))
        self.connections = ConnectionTable(port, limit)
        self.server_state = self.connections
        self._watch_files = watch_files

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            self.connections.sweep(asyncio.get_running_loop().time(), not self._watch_files or _has_descriptors())
        return await super().on_tick(counter)


def connection_limit(wanted: int) -> int:
    """As many as are wanted, or as the limit of open files has room for; raises that limit as far as it may."""
    files = _raise_open_files()
    most = max(_FEWEST, min(wanted, files - max(files // 4, _OTHER_FILES)))
    if most < wanted:
        log.warning("connections: at most %d, not %d files=%d; raise the limit of open files (ulimit -Hn)", most, wanted, files)
    return most


@contextmanager
def metrics_server(listener: socket.socket) -> Iterator[None]:
    """`/metrics` on an event loop in one thread, however many connections there are."""
    server = BoundedServer(make_asgi_app(), "metrics", _SCRAPERS, lifespan="off", timeout_graceful_shutdown=1)
    thread = threading.Thread(target=server.run, args=([listener],), name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)


def _raise_open_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _has_descriptors() -> bool:
    """The event loop accepts and closes connections without a word when there is no descriptor left, so it is tried."""
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
