"""Calls on several threads at once, and background threads of a context manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

THREADS = 8


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Calls `act` with 0 to count - 1, each on a separate thread."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(act, range(count)))


class Threads:
    """Runs each function on a separate thread while the context lasts; the functions return when `over` is set, and the exit waits."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self.over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()
