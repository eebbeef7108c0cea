"""Number of sampled negatives of a training whose spec does not set it.

Without sampled negatives the scores are rates, but the model never sees most items that a user does not like, and ranks a catalogue worse.
So none are sampled only if the spec's gates measure labelled rows and no ranking, and if enough rows are negatives: a few dislikes among
logged positives are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    def negatives(self, chosen: int | None, usual: int, ranked: bool) -> int:
        """Returns the spec's number of sampled negatives for each positive.

        If the spec has none: 0 if the rows have enough negatives and the model need not rank a catalogue (`ranked`), else `usual`.
        """
        if chosen is not None:
            return chosen
        return 0 if self.given_share >= SHARE and not ranked else usual


def sampled_negatives(task: Task, chosen: int | None, usual: int) -> int:
    """Returns the number of sampled negatives for each positive: the spec's number, if it has one.

    A warm run takes its parent's number: the labels of its few days must not change what a score means. Another run decides by its labels.
    """
    if chosen is not None:
        return chosen
    if task.parent is not None:
        return usual if task.negatives is None else task.negatives  # earlier releases always sampled
    labels = count_labels(task.rows)
    negatives = labels.negatives(chosen, usual, task.ranked)
    task.log.info("labels: counted rows=%d positives=%d sampled_negatives=%d", labels.rows, labels.positives, negatives)
    return negatives


def count_labels(rows: Path) -> LabelCounts:
    query = pl.scan_parquet(rows).select(pl.len(), (pl.col("label") > 0).sum())
    return LabelCounts(*query.collect(engine="streaming").row(0))
