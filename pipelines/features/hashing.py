"""Hash with equal results in polars, numpy, NVTabular and ONNX: int64 additions, products and remainders that never overflow. Universal
hash over the prime 2^31 - 1; not for secrets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PRIME = 2**31 - 1
FACTOR, SHIFT, FINAL = 1_103_515_245, 12_345, 1_812_433_253 % PRIME


def begin(value: Any) -> Any:
    """Maps any int64 (polars column, numpy array or number) to a value below the prime."""
    return value % PRIME


def remainder(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """Computes the remainder by the prime for non-negative numbers, faster than a division."""
    folded = (value & PRIME) + (value >> 31)
    folded = (folded & PRIME) + (folded >> 31)
    return np.where(folded == PRIME, 0, folded)


def bucket_of_codes(columns: list[NDArray[np.int64]], buckets: int) -> NDArray[np.int64]:
    """Same as `hashed`, for arrays of codes."""
    digest = columns[0]
    for column in columns[1:]:
        digest = remainder(digest * FACTOR + (column + SHIFT))
    return (remainder(digest * FINAL + SHIFT).astype(np.uint32) % np.uint32(buckets)).astype(np.int64)


def mixed(hashed: Any, value: Any) -> Any:
    """Adds another value below the prime to the hash."""
    return (hashed * FACTOR + value + SHIFT) % PRIME


def bucket(hashed: Any, buckets: int) -> Any:
    return (hashed * FINAL + SHIFT) % PRIME % buckets


def hashed(values: list[Any], buckets: int) -> Any:
    """Returns the bucket of a combination of int64 values."""
    digest = begin(values[0])
    for value in values[1:]:
        digest = mixed(digest, begin(value))
    return bucket(digest, buckets)
