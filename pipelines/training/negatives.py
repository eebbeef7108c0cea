"""Number of sampled negatives of a training whose spec does not set it.

Rows that users saw and did not like are better negatives than sampled ones, and without sampled ones the scores are rates. A few such rows
among logged positives, as feedback brings them, are not enough: then a model would never see most items that a user does not like.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pipelines.models.family import Task

SHARE = 0.5
"""Fewest negatives among the rows that count as given by users."""


@dataclass(frozen=True)
class LabelCounts:
    rows: int
    positives: int

    @property
    def given_share(self) -> float:
        """Share of the rows whose label is negative."""
        return 1 - self.positives / max(1, self.rows)

    def negatives(self, chosen: int | None, usual: int) -> int:
        """Returns the spec's number of sampled negatives for each positive, or 0 if users gave enough, else `usual`."""
        if chosen is not None:
            return chosen
        return 0 if self.given_share >= SHARE else usual


def count_labels(task: Task) -> LabelCounts:
    """Counts the training rows; of a warm run all pairs so far, so that feedback of a few days does not change what a score means."""
    rows = pl.scan_parquet(task.rows if task.history is None else task.history)
    return LabelCounts(*rows.select(pl.len(), (pl.col("label") > 0).sum()).collect(engine="streaming").row(0))
