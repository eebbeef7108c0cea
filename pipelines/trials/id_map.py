"""Ids as numbers: the models and the platform know keys as int64, files may have text. A place in the order of ids stands for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
UNKNOWN = -1
"""The place of an id that isn't there."""


@dataclass(frozen=True)
class Numbering:
    """Of one side: the ids that there are, each once, in order."""

    ids: pl.Series

    @classmethod
    def of(cls, ids: pl.Series) -> Numbering:
        return cls(ids.unique().sort().rename("id"))

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, ids: pl.Series) -> Ints:
        """UNKNOWN for what isn't there. Whole numbers and text are compared as text where files differ in it."""
        numbered, wanted = self.ids, ids.rename("id")
        if numbered.dtype != wanted.dtype:
            numbered, wanted = numbered.cast(pl.String), wanted.cast(pl.String)
        table = pl.DataFrame({"id": numbered}).with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
        places = wanted.to_frame().join(table, on="id", how="left", maintain_order="left")["place"]
        return places.fill_null(UNKNOWN).to_numpy()
