"""HTTP servers of a process: the API and `/metrics`, both within the limits of `http_protocol`."""

from __future__ import annotations

import asyncio
import errno
import gzip
import logging
import os
import resource
import socket
from typing import Any

import uvicorn
from anyio import CapacityLimiter, to_thread
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.wiring.http_protocol import BoundedProtocol, ConnectionTable

log = logging.getLogger(__name__)

_FILES = 65_536
"""Wanted limit of open files. A hard limit may be a billion: too many for programs that close every possible descriptor."""
_OTHER_FILES = 256
"""Minimum of files left to databases, Triton and stages; a quarter of all if that is more."""
_FEWEST = 16
_SCRAPERS = 64
"""Connections of /metrics, for a few Prometheus servers."""
_WRITERS = 2
"""Threads that write the text of /metrics."""


class BoundedServer(uvicorn.Server):
    """The API with at most `limit` connections, and `/metrics` on a listener of its own.

    One event loop serves both. A second loop would not protect the API: both loops need the interpreter's lock.
    """

    def __init__(self, app: ASGIApp, limit: int, metrics: socket.socket | None = None, **config: Any) -> None:
        super().__init__(_config(app, **config))
        self._api, self._scrapers = ConnectionTable("api", limit), ConnectionTable("metrics", _SCRAPERS)
        self.server_state = self._api
        self._metrics = metrics

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._metrics is not None:
            loop, config = asyncio.get_running_loop(), _config(MetricsApp(), lifespan="off")
            config.load()
            self.servers.append(await loop.create_server(lambda: BoundedProtocol(config, self._scrapers, {}, loop), sock=self._metrics))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._scrapers.abort()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            now = asyncio.get_running_loop().time()
            self._api.sweep(now, _has_descriptors())
            self._scrapers.sweep(now)
        return await super().on_tick(counter)


class MetricsApp:
    """The ASGI application of `/metrics`. A thread writes the text, which takes long with a thousand recommenders."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(_WRITERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await to_thread.run_sync(_exposition, Request(scope), limiter=self._limiter)
        await response(scope, receive, send)


def _exposition(request: Request) -> Response:
    encode, media = choose_encoder(request.headers.get("accept", ""))
    names = request.query_params.getlist("name[]")
    body = encode(REGISTRY.restricted_registry(names) if names else REGISTRY)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(body, headers={"Content-Type": media})
    return Response(gzip.compress(body, 6), headers={"Content-Type": media, "Content-Encoding": "gzip"})


def _config(app: ASGIApp, **config: Any) -> uvicorn.Config:
    return uvicorn.Config(app, http=BoundedProtocol, ws="none", log_config=None, access_log=False, proxy_headers=False, **config)


def connection_limit(wanted: int) -> int:
    """Raises the limit of open files as far as possible; returns the wanted number of connections or as many as fit."""
    files = _raise_open_files()
    most = max(_FEWEST, min(wanted, files - max(files // 4, _OTHER_FILES)))
    if most < wanted:
        log.warning("connections: limited by open files, raise ulimit -Hn limit=%d wanted=%d files=%d", most, wanted, files)
    return most


def _raise_open_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _has_descriptors() -> bool:
    """Whether a file descriptor is free. Tries to open one, since the event loop does not report a lack when it accepts connections."""
    try:
        os.close(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EMFILE, errno.ENFILE)
    return True
