"""Runs a Triton in the foreground: for a container, or for a platform that connects by address.

    python -m services.triton.serve --home FOLDER --tls FOLDER --host 0.0.0.0 --grpc 8001 --metrics 8002 --health 8003

`--tls` names the folder of the certificates (services.triton.certificates). When they are replaced, Triton restarts some minutes later; of
several servers on one volume, one at a time.

A dead server is restarted, and each start is announced beside the repository (services.triton.generation_marker). The health port answers
`/` with 200 while the server answers, and `/ready` with 200 when it also has all its versions; 503 otherwise. SIGTERM and SIGINT end the
server and leave nothing in shared memory. If EYAS_TRITON_KEY is set, clients must send it to load or unload models.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from services.triton.certificates import Certificates
from services.triton.client import Client
from services.triton.embedded import EmbeddedTriton, TritonNetwork
from services.triton.generation_marker import announce, vouched
from services.triton.orphan_cleanup import sweep_all
from services.triton.rotation import Rotation
from services.triton.watchdog import HANGS, Watchdog
from shared.domain.errors import EyasError
from shared.telemetry import logs

log = logging.getLogger("services.triton.serve")
_WATCH = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m services.triton.serve")
    parser.add_argument("--home", type=Path, required=True, help="Folder with the model repository")
    parser.add_argument("--host", default="127.0.0.1", help="Address that the server listens on")
    parser.add_argument("--grpc", type=int, default=8001, help="Port of gRPC")
    parser.add_argument("--metrics", type=int, default=8002, help="Port of metrics")
    parser.add_argument("--health", type=int, default=8003, help="Port of health checks")
    security = parser.add_mutually_exclusive_group(required=True)
    security.add_argument("--tls", type=Path, help="Folder with ca.crt, tls.crt and tls.key; clients need a certificate of this CA")
    security.add_argument(
        "--plaintext", action="store_true", help="No TLS: any client of the gRPC port can run code here, so a firewall must protect it"
    )
    parser.add_argument("--rotate-after", type=float, default=120.0, help="Seconds from new certificates to the restart that uses them")
    parser.add_argument("--alone", action="store_true", help="No other server uses this /dev/shm: remove shared memory of former processes")
    options = parser.parse_args()
    logs.configure()
    os.umask(0o077)  # no other user may read the repository and the shared memory
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    try:
        with ExitStack() as undo:
            _serve(options, ending, undo)
    except (EyasError, OSError) as error:
        sys.stderr.write(f"triton: {error}\n")
        sys.exit(1)
    log.info("triton: stopped")


def _serve(options: argparse.Namespace, ending: threading.Event, undo: ExitStack) -> None:
    options.home.mkdir(parents=True, exist_ok=True)
    if options.alone:
        sweep_all()
    certificates = Certificates(options.tls) if options.tls else None
    if certificates:
        certificates.check()
    network = TritonNetwork(options.host, options.grpc, options.metrics, os.environ.get("EYAS_TRITON_KEY", ""), certificates)
    triton = EmbeddedTriton(options.home, network=network)
    undo.callback(triton.stop)
    client = Client(triton.address, certificates=certificates)
    rotation = Rotation(certificates, options.home, options.rotate_after) if certificates else None
    health = ThreadingHTTPServer((options.host, options.health), _health_of(client, options.home))
    undo.callback(health.server_close)
    undo.callback(health.shutdown)
    threading.Thread(target=health.serve_forever, name="health", daemon=True).start()
    triton.start()
    undo.callback(client.close)  # before the server stops, or it waits for its clients
    announce(options.home, triton.gpu)
    ports = (options.grpc, options.metrics, options.health)
    log.info("triton: ready host=%s grpc=%d metrics=%d health=%d home=%s", options.host, *ports, triton.home)
    watchdog = Watchdog(client.ready, triton.kill)
    while not ending.wait(_WATCH):
        client.renew()
        watchdog.ask()
        if watchdog.ended:
            log.error("triton: no answer, it is killed and restarted seconds=%g", HANGS)
        if rotation and rotation.due():
            log.info("triton: restarting with new certificates")
            triton.end()
        if triton.ensure_running():
            log.warning("triton: restarted")
            announce(options.home, triton.gpu)
        if rotation:
            rotation.release(vouched(options.home))
        _reap(triton.pid)
    log.info("triton: stopping")


def _health_of(client: Client, home: Path) -> type[BaseHTTPRequestHandler]:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = client.ready() and (self.path != "/ready" or vouched(home))
            self.send_response(200 if good else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Does nothing: health probes would fill the log."""

    return Health


def _reap(server: int | None) -> None:
    """Reaps orphaned stubs, which a container's process 1 inherits."""
    if os.getpid() != 1:
        return
    while True:
        try:
            exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if exited is None or exited.si_pid == server:  # EmbeddedTriton reaps the server itself
            return
        os.waitpid(exited.si_pid, 0)


if __name__ == "__main__":
    main()
