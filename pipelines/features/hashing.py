"""One hash for all runtimes: additions, products and remainders of int64 that never overflow, so that polars, numpy, NVTabular and ONNX
agree to the last bit. A universal hash over the prime 2^31 - 1; not for secrets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PRIME = 2**31 - 1
FACTOR, SHIFT, FINAL = 1_103_515_245, 12_345, 1_812_433_253 % PRIME


def begin(value: Any) -> Any:
    """A place below the prime for any int64: of a column of polars, an array of numpy, or a number."""
    return value % PRIME


def remainder(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of numbers that aren't negative, by the prime: quicker than a division."""
    folded = (value & PRIME) + (value >> 31)
    folded = (folded & PRIME) + (folded >> 31)
    return np.where(folded == PRIME, 0, folded)


def bucket_of_codes(columns: list[NDArray[np.int64]], buckets: int) -> NDArray[np.int64]:
    """As `hashed`, of arrays of codes."""
    digest = columns[0]
    for column in columns[1:]:
        digest = remainder(digest * FACTOR + (column + SHIFT))
    return (remainder(digest * FINAL + SHIFT).astype(np.uint32) % np.uint32(buckets)).astype(np.int64)


def mixed(hashed: Any, value: Any) -> Any:
    """With another value below the prime."""
    return (hashed * FACTOR + value + SHIFT) % PRIME


def bucket(hashed: Any, buckets: int) -> Any:
    return (hashed * FINAL + SHIFT) % PRIME % buckets


def hashed(values: list[Any], buckets: int) -> Any:
    """A bucket for a combination of int64 values."""
    digest = begin(values[0])
    for value in values[1:]:
        digest = mixed(digest, begin(value))
    return bucket(digest, buckets)
