"""Memory that is used again: a pool's rows lie in one piece, so that what a loader holds is known, and no page is asked for twice."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from pipelines.loaders.columns import Array

_LINE = 64
_KEPT = 8 << 20
"""Larger than what a loader asks for again and again: columns of a row group, batches."""


def keep_what_is_freed() -> None:
    """glibc gives large arrays back to the system as they are freed, and each new one is then paid for page by page, a fifth of a loader's
    time. A larger one that was freed once tells it to keep as much."""
    np.empty(_KEPT, np.uint8)


class Arena:
    """Of so many bytes. Many threads may take from it; all that was taken is given up at once."""

    def __init__(self, size: int) -> None:
        self._bytes = np.empty(size + _LINE, np.uint8)
        self._begin = -self._bytes.ctypes.data % _LINE
        self._lock = threading.Lock()
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            at = self._begin + self._used
            if at + size > len(self._bytes):
                return np.empty(shape, dtype)
            self._used += -(-size // _LINE) * _LINE
        found: Array = self._bytes[at : at + size].view(dtype).reshape(shape)
        return found

    def clear(self) -> None:
        self._used = 0

    @staticmethod
    def room(arrays: int) -> int:
        """Bytes that so many arrays may take beyond their own."""
        return arrays * _LINE
