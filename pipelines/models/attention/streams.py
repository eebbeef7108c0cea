"""Rows that have their sequence with them, as what windows are cut of: one sequence for rows whose sequences go on from one another.

A row's sequence is what was known at its moment. Where the next row of its user has the same one, further by what happened since, both lie
in one stream, and a window of it shows each what it had: its own sequence, or the newest part of it. Where it isn't so (a session has begun
anew, something fell out of a window of time), another stream begins. What is to be found are the rows' own items, of those that were liked:
what else stands in a sequence is read alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, NULL
from pipelines.features.prepared import FEATURE
from pipelines.training.likes import Likes
from shared.domain.errors import Invalid

Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Streams:
    sequences: Likes
    sought: Flags | None = None
    """Of each of their items, whether it is to be found; None: each."""


def read_streams(rows: Path, feature: str, codes: Ints, liked: bool) -> Streams:
    """`codes`: of the catalogue's items. `liked`: sequences are of what was liked alone."""
    name = f"{FEATURE}{feature}"
    frame = pl.read_parquet(rows, columns=["user", "time", "item", "item_row", "label", name]).sort(
        "user", "time", "item", maintain_order=True
    )
    label = frame["label"].to_numpy() > 0
    own = codes[frame["item_row"].to_numpy()]
    return streams_of(frame["user"].to_numpy(), frame[name].to_numpy(), own, label, label if liked else np.ones(len(frame), bool))


def streams_of(users: NDArray[np.int64], before: Ints, own: Ints, label: Flags, counts: Flags) -> Streams:
    """Of rows in their order: `before` each its sequence, NULL behind; `counts`: whether its own item stands in later ones."""
    sought = label & (own >= FIRST)
    if not sought.any():
        raise Invalid("model.family: 'session' learns from likes, and no known item was liked: choose a smaller min_count")
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
    """NULL before the first."""
    length = rows.shape[1]
    at = np.arange(length)[None, :] - (length - (rows != NULL).sum(axis=1))[:, None]
    return np.where(at >= 0, np.take_along_axis(rows, np.maximum(at, 0), axis=1), np.int32(NULL)).astype(np.int32)


def _new(users: NDArray[np.int64], behind: Ints, own: Ints, counts: Flags) -> NDArray[np.int64]:
    """By how many items each row's sequence goes on from that of the row before; -1 where it doesn't."""
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
    """Without those in which nothing is to be found, and without what stands behind the last that is."""
    lengths = np.diff(starts)
    stream = np.repeat(np.arange(len(lengths)), lengths)
    last = np.full(len(lengths), -1, np.int64)
    np.maximum.at(last, stream[sought], np.flatnonzero(sought))
    selected = np.arange(len(items)) <= last[stream]
    counts = np.bincount(stream[selected], minlength=len(lengths))
    return Streams(Likes(np.concatenate([[0], np.cumsum(counts[counts > 0])]), items[selected]), sought[selected])
