"""Divides a loader's memory before reading begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.domain.errors import Invalid

if TYPE_CHECKING:
    from pipelines.loaders.chunks import Chunks

MEBIBYTE = 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: the total, a pool, permutations that are reused, the largest chunk, decoding of a chunk, and most of a row and a batch."""

    total: int
    pool: int
    orders: int
    largest: int
    decoding: int
    a_row: int
    batch: int

    @classmethod
    def shared_out(cls, total: int, chunks: Chunks, batch_size: int, cached: bool = False) -> MemoryPlan:
        """Divides `total`; the pool's size does not depend on a cache or on the files' location."""
        largest = max((chunk.size for chunk in chunks.chunks), default=0)
        # A column exists as read, as Arrow and as packed, with an order of the rows; a chunk for the cache is held whole.
        column = 3 * max((chunk.widest for chunk in chunks.chunks), default=0) + 8 * max((chunk.rows for chunk in chunks.chunks), default=0)
        decoding = column + (largest if cached else 0) + max((chunk.fetched for chunk in chunks.chunks), default=0)
        a_row = max((-(-chunk.size // chunk.rows) for chunk in chunks.chunks if chunk.rows), default=1)
        batch = a_row * min(batch_size, chunks.rows)
        orders = total // 16
        # A batch exists in parts, assembled, and prepared.
        pool = (total - orders - max(3 * total // 16, column + 4 * batch)) // 2
        if pool < largest or total - orders - 2 * pool < decoding + 4 * batch:
            enough = max(-(-16 * (2 * largest + column + 4 * batch) // 15), -(-8 * largest // 3), -(-16 * (decoding + 4 * batch) // 3))
            raise Invalid(
                f"memory: {total / MEBIBYTE:.0f} MiB are too few for row groups of up to {largest / MEBIBYTE:.0f} MiB and batches of"
                f" {batch / MEBIBYTE:.0f} MiB{', with a cache' if cached else ''}; set {-(-enough // MEBIBYTE)} MiB, or write smaller row"
                " groups"
            )
        return cls(total, pool, orders, largest, decoding, a_row, batch)

    @property
    def _beside(self) -> int:
        return self.total - self.orders - 2 * self.pool

    def decoders(self, threads: int) -> int:
        return max(1, min(threads, (self._beside - 4 * self.batch) // max(1, self.decoding)))

    def ahead(self, threads: int) -> int:
        """Returns the number of batches to prepare ahead."""
        room = self._beside - self.decoding * self.decoders(threads)
        return max(1, min(2 * threads + 1, room // max(1, 2 * self.batch) - 1))
