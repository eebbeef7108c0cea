"""Sockets that are bound before anything is promised: a port that was asked for and is taken is an error, a default is not."""

from __future__ import annotations

import logging
import socket

from shared.domain.errors import Conflict

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def bind(what: str, wanted: int | None, default: int) -> socket.socket:
    """A listening address on the loopback interface: `wanted` or nothing, else `default`, else any free port."""
    if wanted is not None:
        try:
            return _bound(wanted)
        except OSError as error:
            raise Conflict(f"port {wanted} for {what} is not free ({error.strerror}); choose another, or 0 for any") from None
    try:
        return _bound(default)
    except OSError:
        taken = _bound(0)
        log.warning("port %d for %s is taken: using %d", default, what, taken.getsockname()[1])
        return taken


def _bound(port: int) -> socket.socket:
    # The protocol is named, or asyncio leaves Nagle's algorithm on and each answer waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
