"""Restarts a Triton after its certificates were replaced: it reads them only at its start.

Certificates are replaced long before the former ones expire, so a restart is not urgent. The pause leaves time for a rolling update by the
same change. The lock lets one of several servers on a volume at a time restart and restore its versions.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from services.triton.certificates import Certificates

log = logging.getLogger(__name__)

_LOCK = "restart.lock"
RESTART_LIMIT = 300.0
"""Seconds after which the next server may restart although this one lacks versions."""


class Rotation:
    """`due` returns True once per new set of files; the lock is held until `release`."""

    def __init__(self, certificates: Certificates, home: Path, pause: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._certificates = certificates
        self._path = home.absolute().parent / _LOCK
        self._pause = pause
        self._clock = clock
        self._used = certificates.version()
        self._last_version = self._used
        self._changed = 0.0
        self._lock: IO[bytes] | None = None
        self._restarted = 0.0

    def due(self) -> bool:
        try:
            version = self._certificates.version()
        except OSError as error:
            log.debug("certificates: reading failed error=%s", error)
            return False
        now = self._clock()
        if version != self._last_version:
            self._last_version, self._changed = version, now
            log.info("certificates: replaced, a restart is due seconds=%g", self._pause)
        if version == self._used or now - self._changed < self._pause or not self._acquire():
            return False
        self._used, self._restarted = version, now
        return True

    def release(self, ready: bool) -> None:
        """Lets the next server restart, once this one has its versions or RESTART_LIMIT has passed."""
        if self._lock and (ready or self._clock() - self._restarted > RESTART_LIMIT):
            self._lock.close()
            self._lock = None

    def _acquire(self) -> bool:
        lock = self._path.open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another server restarts
            lock.close()
            return False
        self._lock = lock
        return True
