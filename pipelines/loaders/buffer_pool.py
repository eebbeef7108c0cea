"""Reusable memory of a loader: a pool's rows are in one buffer, so that the loader's memory is known and pages are not requested again."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import numpy as np

from pipelines.loaders.columns import LINE, Array, aligned

_MAPPED, _KEPT = 8 << 20, 16 << 20
"""Bytes: larger arrays, such as buffer pools, are mapped separately; free memory that a heap keeps at its end."""
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3


def keep_what_is_freed() -> None:
    """Makes glibc keep freed memory. By default it returns large arrays to the system, and each new array then costs page faults, a fifth
    of a loader's time. Call at each epoch, because TensorFlow resets the limit when it makes a dataset of a Python generator."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        libc.mallopt(_M_TOP_PAD, _KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT)


class BufferPool:
    """A buffer of `size` bytes for many threads; `clear` frees all arrays at once."""

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
        """Bytes that alignment adds for this number of arrays."""
        return arrays * LINE
