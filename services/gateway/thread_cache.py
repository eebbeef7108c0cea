"""Threads that start with work, are reused, and end after a time without work.

Unlike an executor, the cache has no limit and keeps no idle thread forever: callers must bound their work.
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
        """Waiting threads without an assigned task."""
        self._lock = threading.Lock()

    def run(self, task: Callable[[], None]) -> None:
        """Runs the task on an idle or a new thread. `task` must not raise."""
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
        return self._tasks.get()  # a task for this thread is on its way
