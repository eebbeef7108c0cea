"""The control plane's heartbeat: every kind, one after the other, in a thread of its own; woken early when asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from shared.domain.errors import is_explained

log = logging.getLogger(__name__)


class Loop:
    """Calls its steps in order, again and again; a step that fails is logged and doesn't stop the others."""

    def __init__(self, name: str, steps: Sequence[Callable[[], object]], interval: float) -> None:
        self._steps = steps
        self._interval = interval
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failing: set[int] = set()

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float = 30) -> None:
        """Ends after the step under way."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for number, step in enumerate(self._steps):
                if self._stopping.is_set():
                    return
                self._guarded(number, step)
            self._wake.wait(self._interval)
            self._wake.clear()

    def _guarded(self, number: int, step: Callable[[], object]) -> None:
        """Says a fault once, and once again when it is over."""
        try:
            step()
        except Exception as error:
            if number not in self._failing:
                self._failing.add(number)
                log.error("%s: %s", self._thread.name, error, exc_info=None if is_explained(error) else error)
            return
        if number in self._failing:
            self._failing.discard(number)
            log.info("%s: going on", self._thread.name)
