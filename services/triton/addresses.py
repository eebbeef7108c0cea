"""Where a fleet of Tritons that somebody else runs is: addresses that were told, or those that a name stands for now.

eyas-triton:8001                      one, on the folder EYAS_TRITON_HOME
10.0.0.7:8001,10.0.0.8:8001           several, each on a folder of its own below it: 10.0.0.7_8001
dns:eyas-triton-replicas:8001         every address of a name, asked again and again: pods come and go
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
        """HOST:PORT of each replica, without waiting long."""


class Fixed:
    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)

    def current(self) -> Sequence[str]:
        return self._addresses


class Named:
    """A headless service's name. It is resolved on a thread, for a name server may be slow; what it said last holds while it is silent."""

    def __init__(self, name: str, port: int, every: float = RESOLVE_EVERY, resolve: Callable[[str], Sequence[str]] | None = None) -> None:
        self._name, self._port, self._every = name, port, every
        self._resolve = resolve or resolved
        self._found: tuple[str, ...] = ()
        self._asked = -math.inf
        self._asking = threading.Lock()
        self._silent = False

    def current(self) -> Sequence[str]:
        if time.monotonic() - self._asked >= self._every and self._asking.acquire(blocking=False):
            first, self._asked = self._asked < 0, time.monotonic()
            asking = threading.Thread(target=self._ask, name="resolve", daemon=True)
            asking.start()
            if first:
                asking.join(self._every)
        return self._found

    def _ask(self) -> None:
        try:
            self._found = tuple(sorted(f"{address}:{self._port}" for address in self._resolve(self._name)))
            self._silent = False
        except OSError as error:
            if not self._silent:
                log.warning("%s can't be resolved: %s; going on with %s", self._name, error, ", ".join(self._found) or "nobody")
            self._silent = True
        finally:
            self._asking.release()


def resolved(name: str) -> Sequence[str]:
    """The name's IPv4 addresses. A name that stands for nobody is an OSError: who was there last is not forgotten for that."""
    return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)})


def addresses(text: str) -> Addresses:
    """Invalid for what is no address."""
    if text.startswith(_DNS):
        name, port = _parted(text.removeprefix(_DNS))
        return Named(name, port)
    listed = [part.strip() for part in text.split(",")]
    for address in listed:
        _parted(address)
    if len(set(listed)) < len(listed):
        raise Invalid(f"'{text}' names an address twice")
    return Fixed(listed)


def folder_of(address: str) -> str:
    """What the home of a replica is called, where there are several."""
    return address.replace(":", "_")


def _parted(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if not match or not 0 < int(match[2]) < 65536:
        raise Invalid(f"'{text}' is no HOST:PORT")
    return match[1], int(match[2])
