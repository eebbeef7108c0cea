"""Ports for servers that can't choose one themselves."""

from __future__ import annotations

import contextlib
import random
import socket

_BELOW = range(10_000, 32_000)
"""The kernel gives none of these to a connection or to who asks for any: only another such server can take one meanwhile."""
_RANDOM = random.SystemRandom()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    found: list[int] = []
    for port in _RANDOM.sample(_BELOW, len(_BELOW)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"fewer than {count} ports are free")


def free_port(host: str = "127.0.0.1") -> int:
    return free_ports(1, host)[0]
