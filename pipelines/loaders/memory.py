"""What a loader may hold, shared out before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.domain.errors import Invalid

if TYPE_CHECKING:
    from pipelines.loaders.chunks import Chunks

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Memory:
    """Bytes: of all that a loader holds, of a pool, of permutations that are used often, of the largest chunk, of what decoding one takes,
    of a row and of a batch at most."""

    total: int
    pool: int
    orders: int
    largest: int
    decoding: int
    a_row: int
    batch: int

    @classmethod
    def shared_out(cls, total: int, chunks: Chunks, batch_size: int, cached: bool = False) -> Memory:
        """The pool depends neither on whether there is a cache nor on where files are."""
        largest = max((chunk.size for chunk in chunks.chunks), default=0)
        # A column is there as it is read, as Arrow and as it is held, with an order of the rows; what goes into a cache is held whole.
        column = 3 * max((chunk.widest for chunk in chunks.chunks), default=0) + 8 * max((chunk.rows for chunk in chunks.chunks), default=0)
        decoding = column + (largest if cached else 0) + max((chunk.fetched for chunk in chunks.chunks), default=0)
        a_row = max((-(-chunk.size // chunk.rows) for chunk in chunks.chunks if chunk.rows), default=1)
        batch = a_row * min(batch_size, chunks.rows)
        orders = total // 16
        # A batch is there in parts, put together, and made ready.
        pool = (total - orders - max(3 * total // 16, column + 4 * batch)) // 2
        if pool < largest or total - orders - 2 * pool < decoding + 4 * batch:
            enough = max(-(-16 * (2 * largest + column + 4 * batch) // 15), -(-8 * largest // 3), -(-16 * (decoding + 4 * batch) // 3))
            raise Invalid(
                f"memory: {total / MEBIBYTE:.0f} MiB are too few for row groups of up to {largest / MEBIBYTE:.0f} MiB and batches of"
                f" {batch / MEBIBYTE:.0f} MiB{', with a cache' if cached else ''}: give {-(-enough // MEBIBYTE)} MiB, or write smaller row"
                " groups"
            )
        return cls(total, pool, orders, largest, decoding, a_row, batch)

    @property
    def _beside(self) -> int:
        return self.total - self.orders - 2 * self.pool

    def decoders(self, threads: int) -> int:
        return max(1, min(threads, (self._beside - 4 * self.batch) // max(1, self.decoding)))

    def ahead(self, threads: int) -> int:
        """Batches."""
        room = self._beside - self.decoding * self.decoders(threads)
        return max(1, min(2 * threads + 1, room // max(1, 2 * self.batch) - 1))
