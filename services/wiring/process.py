"""One process of the platform, from its settings to its end.

Start: lock the home, migrate the state, wait for Triton, start the loops, then take traffic. End: stop traffic first, then loops, stages
and Triton; nothing outlives the process.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from services.api.app import create_app
from services.console import HERE, Site
from services.home import Endpoint, Home, check_first_token
from services.listening import bind, reachable
from services.settings import Settings, read_secret, strange
from services.wiring.draining import DrainingServer
from services.wiring.http_server import connection_limit
from services.wiring.platform import Platform
from services.wiring.proxies import behind_proxies
from shared.datafiles import is_object
from shared.telemetry import logs

log = logging.getLogger(__name__)


def serve(options: Mapping[str, Any]) -> int:
    """Runs until SIGINT or SIGTERM. Options that are None come from the environment (`EYAS_...`)."""
    settings = Settings.read({name: value for name, value in options.items() if value is not None})
    logs.configure()
    for line in strange(os.environ):
        log.warning("settings: ignored a variable reason=%s", line)
    threadpool_limits(1, "blas")  # threads per request spin while other requests wait (3 times the CPU, measured)
    os.umask(0o077)  # users' data is private on a shared machine
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: everything started is stopped
    try:
        with ExitStack() as undo:
            _serve(settings, undo)
    except KeyboardInterrupt:
        log.info("platform: interrupted while starting")
    log.info("platform: stopped")
    return 0


def _serve(settings: Settings, undo: ExitStack) -> None:
    began = time.monotonic()
    connections = connection_limit(settings.connections)
    home = Home(settings.home)
    if settings.owns_home:
        home.open()
        undo.callback(home.close)
    token = _first_token(settings, home)
    listener = undo.enter_context(bind("the API", settings.port, 8080, settings.host))
    metrics = undo.enter_context(bind("/metrics", settings.metrics_port, 9090, settings.host))
    if (settings.console_url or "").startswith("https:") and not settings.trusted_proxies:
        log.warning("console: its cookies are not Secure, set EYAS_TRUSTED_PROXIES to the TLS proxy url=%s", settings.console_url)
    platform = Platform(settings, home, token, _data_roots(settings), undo)
    app = create_app(platform.door, platform.parts, platform.gateway)
    online = HERE if platform.gateway else settings.gateway_url
    provider = platform.provider if settings.oidc_client_id else None
    site = Site(app, online, settings.image_hosts, provider) if platform.parts else app
    server = DrainingServer(behind_proxies(site, settings.trusted_proxies), connections, metrics, settings.drain)
    app.state.closing = lambda: server.leaving  # open streams end when the server drains
    platform.leaves(lambda: server.leaving)
    platform.start()
    url, scraped = (f"http://{reachable(settings.host)}:{server_socket.getsockname()[1]}" for server_socket in (listener, metrics))
    metrics_url = f"{scraped}/metrics"
    if settings.owns_home:
        home.announce(Endpoint(url, metrics_url, os.getpid()))
    details = (settings.role, settings.name, time.monotonic() - began, url, metrics_url, home.folder)
    log.info("platform: ready role=%s name=%s seconds=%.1f url=%s metrics=%s home=%s", *details)
    if platform.parts:
        log.info("console: sign in with the token url=%s token_file=%s", url, settings.token_file or home.folder / "token")
    # uvicorn handles signals only while it runs, and raises caught ones again after its shutdown.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    gc.collect()
    gc.freeze()  # permanent objects (modules, routes, models) are excluded from later collections
    server.run(sockets=[listener])
    log.info("platform: stopping")


def _first_token(settings: Settings, home: Home) -> str:
    if settings.token_file is None:
        return home.token()
    token = read_secret(settings.token_file, "token_file")
    check_first_token(token, str(settings.token_file))
    return token


def _data_roots(settings: Settings) -> tuple[str, ...]:
    configured = settings.data_roots or ["data"]
    roots = tuple(root if is_object(root) else str(Path(root).absolute()) for root in configured)
    for root in roots if settings.role != "gateway" else ():
        if not is_object(root) and not Path(root).is_dir():
            log.warning("data root: not a folder, specs cannot read it path=%s", root)
    return roots
