"""Maps ids, which may be text, to indexes in the sorted ids, because models and the platform need int64 keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UNKNOWN = -1
"""Index of an unknown id."""


@dataclass(frozen=True)
class IdMap:
    """Distinct ids of users or items, sorted."""

    ids: pl.Series

    @classmethod
    def of(cls, ids: pl.Series) -> IdMap:
        return cls(ids.unique().sort().rename("id"))

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, ids: pl.Series) -> Ints:
        """Returns indexes, UNKNOWN for unknown ids. Compares whole numbers and text as text."""
        numbered, wanted = self.ids, ids.rename("id")
        if numbered.dtype != wanted.dtype:
            numbered, wanted = numbered.cast(pl.String), wanted.cast(pl.String)
        table = pl.DataFrame({"id": numbered}).with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
        places = wanted.to_frame().join(table, on="id", how="left", maintain_order="left")["place"]
        return places.fill_null(UNKNOWN).to_numpy()
