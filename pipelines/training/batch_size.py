"""Default batch size (G-25): as many rows as keep a machine busy, within the limits that the data sets.

Layers: 65,536 rows for small layers (up to 2^17 multiplications per row), half as many for each four times more, at least 8,192: 8,192 for
2048-1024-512-256. Lists: at most 2^20 looked-up values per step, so 16,384 rows for a list of 64 values, divided by the number of such
lists. Data: an epoch has at least `STEPS` steps, unless a step would have fewer than `FEWEST` rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from shared.domain.errors import Invalid

MOST, LEAST, FEWEST, STEPS = 65_536, 8_192, 1_024, 256
IN_BATCH, MOST_IN_BATCH = 4_096, 16_384
"""Default and most rows of a step that compares all its rows with each other: it holds their square several times."""
_SMALL = 1 << 17
_LOOKED_UP = 1 << 20


@dataclass(frozen=True)
class BatchSize:
    size: int
    why: str


def batch_size(chosen: int | None, widths: Sequence[int], lookups: float, rows: int | None, in_batch: bool = False) -> BatchSize:
    """Returns the batch size and its reason. `chosen` is the spec's value. `widths` are the layers' widths, input and output included.
    `lookups` counts a row's values in all tables. `rows` counts an epoch's rows with negatives, or is None before they are known.
    `in_batch` says whether a step compares all its rows with each other."""
    if chosen is not None:
        if in_batch and chosen > MOST_IN_BATCH:
            raise Invalid(
                f"model.train.batch_size: a step compares each row with each other row, so {chosen:,} rows take"
                f" {4 * chosen**2 / 1e9:.0f} GB several times over: set at most {MOST_IN_BATCH:,}"
            )
        return BatchSize(chosen, "set in the spec")
    by_layers = _by_layers(sum(width * other for width, other in pairwise(widths)))
    by_lists = _power(int(_LOOKED_UP / max(1.0, lookups)))
    smallest = min(
        BatchSize(by_layers, f"by rule of its layers ({'-'.join(map(str, widths)) or 'none'})"),
        BatchSize(max(FEWEST, by_lists), f"by rule of its tables ({lookups:.3g} values looked up per row)"),
        *([BatchSize(IN_BATCH, "by rule of a step that compares each row with each other row")] if in_batch else ()),
        key=lambda candidate: candidate.size,
    )
    if rows is None:
        return BatchSize(smallest.size, f"{smallest.why}; fewer for few rows, which training counts")
    by_data = max(FEWEST, _power(rows // STEPS))
    return BatchSize(by_data, f"by rule of its {rows:,} rows per epoch, for {STEPS} steps") if by_data < smallest.size else smallest


def _by_layers(products: int) -> int:
    size, most = MOST, _SMALL
    while products > most and size > LEAST:
        size, most = size // 2, most * 4
    return size


def _power(value: int) -> int:
    """Returns the largest power of two up to `value`."""
    return 1 << max(0, value.bit_length() - 1)
