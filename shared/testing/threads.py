"""Work that goes on while a context lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Threads:
    """Each work on a thread of its own, from the context's beginning to its end, which waits for all of it; works look at `over`."""

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
