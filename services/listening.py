"""Binds listening sockets before the process starts: a requested port that is taken is an error, a default port is not."""

from __future__ import annotations

import errno
import logging
import socket

from shared.domain.errors import Conflict, Invalid

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def reachable(host: str) -> str:
    """Returns the address at which this machine reaches a listener at `host`."""
    return LOOPBACK if host == "0.0.0.0" else host  # noqa: S104  compared, not bound


def bind(service: str, wanted: int | None, default: int, host: str = LOOPBACK) -> socket.socket:
    """Listens at `host` on the port `wanted`; without it on `default`, or else on any free port."""
    if wanted is not None:
        try:
            return _bound(host, wanted)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise Invalid(f"{host} is not an address of this machine: {service} cannot listen there") from None
            raise Conflict(f"port {wanted} for {service} is not free ({error.strerror}); choose another, or 0 for any") from None
    try:
        return _bound(host, default)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise Invalid(f"{host} is not an address of this machine: {service} cannot listen there") from None
        listener = _bound(host, 0)
        log.warning("port: taken, using another service=%s port=%d using=%d", service, default, listener.getsockname()[1])
        return listener


def _bound(host: str, port: int) -> socket.socket:
    # Without a named protocol asyncio leaves Nagle's algorithm on, and each answer waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
