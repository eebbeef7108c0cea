"""Addresses of Tritons that other processes run: a fixed list, or a DNS name's current addresses.

eyas-triton:8001                      one server, on the folder EYAS_TRITON_HOME
10.0.0.7:8001,10.0.0.8:8001           several, each on its own folder below it: 10.0.0.7_8001
dns:eyas-triton-replicas:8001         all addresses of a name, resolved every two seconds
"""

from __future__ import annotations

import logging
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from shared.domain.errors import Invalid

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?):([0-9]{1,5})")
_DNS = "dns:"
RESOLVE_EVERY = 2.0


class Addresses(Protocol):
    def current(self) -> Sequence[str]:
        """Returns HOST:PORT of each replica; waits briefly at most."""


class FixedAddresses:
    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)

    def current(self) -> Sequence[str]:
        return self._addresses


class ServiceAddresses:
    """The addresses of a headless service. A thread resolves the name, since DNS may be slow; the last result stays while DNS fails."""

    def __init__(self, name: str, port: int, every: float = RESOLVE_EVERY, resolve: Callable[[str], Sequence[str]] | None = None) -> None:
        self._name, self._port, self._every = name, port, every
        self._resolve = resolve or resolved
        self._addresses: tuple[str, ...] = ()
        self._resolved_at = -math.inf
        self._asking = threading.Lock()
        self._silent = False

    def current(self) -> Sequence[str]:
        if time.monotonic() - self._resolved_at >= self._every and self._asking.acquire(blocking=False):
            first, self._resolved_at = self._resolved_at < 0, time.monotonic()
            asking = threading.Thread(target=self._ask, name="resolve", daemon=True)
            asking.start()
            if first:
                asking.join(self._every)
        return self._addresses

    def _ask(self) -> None:
        try:
            self._addresses = tuple(sorted(f"{address}:{self._port}" for address in self._resolve(self._name)))
            self._silent = False
        except OSError as error:
            if not self._silent:
                last = ",".join(self._addresses) or "none"
                log.warning("address: resolving failed name=%s addresses_in_use=%s error=%s", self._name, last, error)
            self._silent = True
        finally:
            self._asking.release()


def resolved(name: str) -> Sequence[str]:
    """Returns the name's IPv4 addresses. Raises OSError if there are none, so that the last addresses stay in use."""
    return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)})


def addresses(text: str) -> Addresses:
    """Parses the setting; raises Invalid for a malformed or repeated address."""
    if text.startswith(_DNS):
        name, port = _parted(text.removeprefix(_DNS))
        return ServiceAddresses(name, port)
    listed = [part.strip() for part in text.split(",")]
    for address in listed:
        _parted(address)
    if len(set(listed)) < len(listed):
        raise Invalid(f"'{text}' repeats an address; write each HOST:PORT once")
    return FixedAddresses(listed)


def folder_of(address: str) -> str:
    """Returns the name of a replica's home folder."""
    return address.replace(":", "_")


def _parted(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if not match or not 0 < int(match[2]) < 65536:
        raise Invalid(f"'{text}' is not HOST:PORT")
    return match[1], int(match[2])
