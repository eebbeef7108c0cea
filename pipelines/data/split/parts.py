"""Parts of a split, with their requirements."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from shared.domain.errors import BadData


@dataclass(frozen=True)
class SplitRows:
    """Training rows and holdout. `cut`: start of the holdout, if that is one moment."""

    train: pl.LazyFrame
    holdout: pl.LazyFrame
    cut: float | None = None

    def checked(self, name: str, advice: str) -> SplitRows:
        """Raises BadData unless both parts have rows and a positive."""
        for side, part in (("train", self.train), ("holdout", self.holdout)):
            rows, positives = part.select(pl.len(), pl.col("label").cast(pl.Int64).sum()).collect(engine="streaming").row(0)
            if not rows:
                raise BadData(f"{name}: split.test leaves no rows for {side}: {advice}")
            if not positives:
                raise BadData(f"{name}: split.test leaves no positive among the {rows:,} rows for {side}")
        return self
