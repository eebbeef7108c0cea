"""Threads that are started when work comes, used again, and ended after a while without work.

Unlike an executor it has no limit and keeps no thread for ever: whoever hands work over bounds how much of it there is.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

IDLE = 5.0
"""Seconds without work after which a thread ends."""


class ThreadCache:
    def __init__(self, name: str, idle: float = IDLE) -> None:
        self._name = name
        self._idle_seconds = idle
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._idle = 0
        """Waiting threads that no task is meant for yet."""
        self._lock = threading.Lock()

    def run(self, task: Callable[[], None]) -> None:
        """On an idle thread, or else on a new one. `task` must not raise."""
        with self._lock:
            starts = self._idle == 0
            if not starts:
                self._idle -= 1
        self._tasks.put(task)
        if starts:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while task := self._next():
            task()
            with self._lock:
                self._idle += 1

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._tasks.get(timeout=self._idle_seconds)
        except queue.Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
        return self._tasks.get()  # a task is meant for this thread, and on its way
