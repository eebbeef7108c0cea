"""Batches of events and items within the API's limits of a body: rows, bytes and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MIB = 1024 * 1024
_FRAME = 64
"""Bytes of a body around its rows."""


def batches(rows: Iterable[bytes], most_rows: int, most_bytes: int, most_values: int) -> Iterator[list[bytes]]:
    """Yields the rows in order. A row that alone is too large is a batch of its own: the platform names its fault."""
    batch: list[bytes] = []
    size, values = _FRAME, 3
    for row in rows:
        row_size = len(row) + 1
        row_values = 1 + sum(map(row.count, (b",", b"[", b"{")))  # as the platform counts, and those in texts
        if batch and (len(batch) == most_rows or size + row_size > most_bytes or values + row_values > most_values):
            yield batch
            batch, size, values = [], _FRAME, 3
        batch.append(row)
        size, values = size + row_size, values + row_values
    if batch:
        yield batch


def body(field: str, batch: list[bytes]) -> bytes:
    return b'{"%s":[%s]}' % (field.encode(), b",".join(batch))
