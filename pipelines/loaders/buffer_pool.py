"""Memory that is used again: a pool's rows lie in one piece, so that what a loader holds is known, and no page is asked for twice."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np

from pipelines.loaders.columns import LINE, Array, aligned

_MAPPED, _KEPT = 8 << 20, 16 << 20
"""Bytes: what is larger is mapped by itself, such as arenas; free memory that a heap keeps at its end."""
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_what_is_freed() -> None:
    """glibc gives large arrays back to the system as they are freed, and each new one is then paid for page by page, a fifth of a loader's
    time. So it is told to keep them: at each epoch, for TensorFlow sets the limit back when it makes a dataset of a Python generator."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        libc.mallopt(_M_TOP_PAD, _KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)


class BufferPool:
    """Of so many bytes. Many threads may take from it; all that was taken is given up at once."""

    def __init__(self, size: int) -> None:
        self._bytes = aligned((size,), np.uint8)
        self._lock = threading.Lock()
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            at = self._used
            if at + size > len(self._bytes):
                return np.empty(shape, dtype)
            self._used += -(-size // LINE) * LINE
        array: Array = self._bytes[at : at + size].view(dtype).reshape(shape)
        return array

    def clear(self) -> None:
        self._used = 0

    @staticmethod
    def room(arrays: int) -> int:
        """Bytes that so many arrays may take beyond their own."""
        return arrays * LINE
