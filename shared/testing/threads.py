"""Background threads of a context manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


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
