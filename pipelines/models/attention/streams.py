"""Makes sequences for windows from rows with a `sequence` feature: rows whose sequences continue each other share a stream.

A row's sequence is the user's history at the row's time. If the next row of the user has the same sequence plus newer items, both rows
share a stream, and a window shows each row its own sequence, or the newest part of it. Otherwise (a new session, or items that left a time
window) a new stream begins. Targets are the rows' own liked items; all other items of a sequence are only read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.features.prepared import FEATURE
from pipelines.training.likes import LikesByRow
from shared.domain.errors import Invalid

Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Streams:
    sequences: LikesByRow
    sought: Flags | None = None
    """For each item of the sequences, whether it is a target; None means all are."""


def read_streams(rows: Path, feature: str, codes: Ints, liked: bool) -> Streams:
    """Reads the rows; `codes` holds the codes of the catalogue's items, `liked` says that sequences contain only liked items."""
    name = f"{FEATURE}{feature}"
    frame = pl.read_parquet(rows, columns=["user", "time", "item", "item_row", "label", name]).sort(
        "user", "time", "item", maintain_order=True
    )
    label = frame["label"].to_numpy() > 0
    own = codes[frame["item_row"].to_numpy()]
    return streams_of(frame["user"].to_numpy(), frame[name].to_numpy(), own, label, label if liked else np.ones(len(frame), bool))


def streams_of(users: NDArray[np.int64], before: Ints, own: Ints, label: Flags, counts: Flags) -> Streams:
    """Builds streams of sorted rows; `before` holds each row's sequence, then NULL. `counts`: whether later sequences have its item."""
    sought = label & (own >= FIRST)
    if not sought.any():
        raise Invalid("model.family: 'session' learns from positives of known items, but none exist: lower min_count")
    length = before.shape[1]
    behind = _to_the_right(before)
    new = _new(users, behind, own, counts)
    first = new < 0
    last = np.append(first[1:], True)
    kept_counts = np.where(first, (before != NULL).sum(axis=1), new)
    places = np.arange(length)[None, :] >= length - kept_counts[:, None]
    selected = np.concatenate([places, (last & sought)[:, None]], axis=1)
    items = np.concatenate([behind, own[:, None].astype(np.int32)], axis=1)[selected]
    ends = np.cumsum(selected.sum(axis=1)) - selected[:, -1]
    flags = np.zeros(len(items) + 1, bool)
    flags[ends[sought]] = True
    begins = np.flatnonzero(first)
    starts = np.append((ends - kept_counts)[begins], len(items))
    return _trimmed(items, flags[:-1], starts)


def _to_the_right(rows: Ints) -> Ints:
    """Moves the padding to the start of each row."""
    length = rows.shape[1]
    at = np.arange(length)[None, :] - (length - (rows != NULL).sum(axis=1))[:, None]
    return np.where(at >= 0, np.take_along_axis(rows, np.maximum(at, 0), axis=1), np.int32(NULL)).astype(np.int32)


def _new(users: NDArray[np.int64], behind: Ints, own: Ints, counts: Flags) -> NDArray[np.int64]:
    """Returns the number of items by which each row's sequence continues the sequence of the row before; -1 if it does not."""
    added = np.full(len(users), -1, np.int64)
    left = np.flatnonzero(users[1:] == users[:-1]) + 1
    length = behind.shape[1]
    for new in range(length):
        follows = ~counts[left - 1] | (behind[left, length - new] == own[left - 1]) if new else ~counts[left - 1]
        there = left[follows]
        there = there[(behind[there, : length - new] == behind[there - 1, new:]).all(axis=1)]
        added[there] = new
        left = left[added[left] < 0]
    return added


def _trimmed(items: Ints, sought: Flags, starts: NDArray[np.int64]) -> Streams:
    """Drops streams without a target, and the items after each stream's last target."""
    lengths = np.diff(starts)
    stream = np.repeat(np.arange(len(lengths)), lengths)
    last = np.full(len(lengths), -1, np.int64)
    np.maximum.at(last, stream[sought], np.flatnonzero(sought))
    selected = np.arange(len(items)) <= last[stream]
    counts = np.bincount(stream[selected], minlength=len(lengths))
    return Streams(LikesByRow(np.concatenate([[0], np.cumsum(counts[counts > 0])]), items[selected]), sought[selected])
