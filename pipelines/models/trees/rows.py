"""Training rows of trees: split into folds, with drawn negatives, described by the likes of the other folds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.data.stable_hash import stable_hash
from pipelines.inputs.batches import Batches, TrainingBatch
from pipelines.loaders.columns import Column
from pipelines.models.mf import fill
from pipelines.models.trees.growing import TreeRows
from pipelines.models.trees.knowledge import Knowledge, learn
from pipelines.models.trees.layout import TreeLayout
from pipelines.training.als import AlsTerms, Factors, begin, sweeps
from pipelines.training.als_choice import choose_strength
from pipelines.training.likes import LikePairs
from shared.contracts.families import GbmParams, MfParams
from shared.domain.errors import Invalid

ROWS = 65_536
"""Approximate rows of a part."""
_CELLS = 1 << 22
_ROW_GROUP = 65_536
Draw = Callable[[Mapping[str, Column], np.random.Generator], NDArray[Any]]


@dataclass(frozen=True)
class FoldKnowledge:
    """Knowledge from all likes, and from all likes except each fold's."""

    complete: Knowledge
    without: tuple[Knowledge, ...]


def find_out(pairs: LikePairs, params: GbmParams, seed: int, log: logging.Logger) -> FoldKnowledge:
    """Learns the knowledge; the regularisation is chosen once, on all likes."""
    strength = choose_strength(pairs, params.width, MfParams().unobserved, seed, log) if params.width else 0.0

    def of(some: LikePairs) -> Knowledge:
        return learn(some, factorised(some, params.width, strength, seed) if params.width else None, len(pairs))

    codes = pl.DataFrame({"user": pairs.users, "item": pairs.items})
    fold = codes.select(fold_of(pl.col("user"), pl.col("item"), params.folds, seed)).to_series().to_numpy()
    without = []
    for number in range(params.folds):
        rest = pairs.take(np.flatnonzero(fold != number))
        if not len(rest):
            raise Invalid(
                f"model.params.folds: {len(pairs):,} positives are too few for {params.folds} folds: collect more positives first"
            )
        without.append(of(rest))
        log.info("fold: computed fold=%d of=%d", number + 1, params.folds)
    return FoldKnowledge(of(pairs), tuple(without))


def factorised(pairs: LikePairs, width: int, strength: float, seed: int) -> Factors:
    factors = begin(pairs.user_count, pairs.item_count, width, seed)
    usual = MfParams()
    for _ in sweeps(pairs, factors, AlsTerms(usual.unobserved, strength), usual.sweeps):
        pass
    fill(factors, pairs)
    return factors


def fold_of(user: pl.Expr, item: pl.Expr, folds: int, seed: int) -> pl.Expr:
    """Returns the fold of a pair of codes."""
    mixed = stable_hash(stable_hash(user.cast(pl.Int64) + pl.lit(seed, pl.Int64)).reinterpret(signed=True) ^ item.cast(pl.Int64))
    return (mixed % pl.lit(folds, pl.UInt64)).alias("fold")


def deal(rows: Path, item_codes: NDArray[Any], folds: int, seed: int, folder: Path) -> tuple[Path | None, ...]:
    """Writes a file for each fold and returns the paths, None for an empty fold; a user's rows are adjacent."""
    items = pl.LazyFrame({"item_row": np.arange(len(item_codes), dtype=np.int32), "~item": item_codes})
    frame = pl.scan_parquet(rows)
    kind = frame.collect_schema()["item_row"]
    joined = frame.join(items.with_columns(pl.col("item_row").cast(kind)), on="item_row", how="left", maintain_order="left")
    dealt = joined.with_columns(fold_of(pl.col("user_code"), pl.col("~item"), folds, seed)).drop("~item")
    paths: list[Path | None] = []
    for number in range(folds):
        path = folder / f"fold-{number}.parquet"
        fold_rows = dealt.filter(pl.col("fold") == number).drop("fold").sort("user_code", maintain_order=True)
        fold_rows.sink_parquet(path, row_group_size=_ROW_GROUP, compression="lz4", statistics=False)
        paths.append(path if pl.scan_parquet(path).select(pl.len()).collect().item() else None)
    return tuple(paths)


@dataclass(frozen=True)
class Popular:
    """Draws rows of `drawable` in proportion to likes plus one."""

    likes: NDArray[np.float64]
    drawable: NDArray[np.int64]

    def __call__(self, rows: Mapping[str, Column], random: np.random.Generator) -> NDArray[Any]:
        drawn: NDArray[Any] = self.drawable[np.searchsorted(self._ends, random.random(_count(rows)) * self._ends[-1], side="right")]
        return drawn

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        return np.cumsum(self.likes[self.drawable] + 1)


@dataclass(frozen=True)
class Retrieved:
    """Draws from the items that the factorisation retrieves for a user, without the user's likes."""

    knowledge: Knowledge
    items: NDArray[np.int32]
    """Item codes by catalogue row."""
    likes: LikePairs
    count: int
    drawable: NDArray[np.int64]

    def __call__(self, rows: Mapping[str, Column], random: np.random.Generator) -> NDArray[Any]:
        users = np.asarray(rows["user_code"])
        distinct, place = np.unique(users, return_inverse=True)
        count = min(self.count, len(self.drawable))
        step = max(1, _CELLS // len(self.items))
        parts = [self._best(distinct[at : at + step], count) for at in range(0, len(distinct), step)]
        best = np.concatenate(parts) if parts else np.zeros((0, count), np.int64)
        drawn: NDArray[Any] = best[place, random.integers(0, count, len(users))]
        return drawn

    def _best(self, users: NDArray[Any], count: int) -> NDArray[Any]:
        scores = self.knowledge.fits(users)
        liked = self._liked.rows(users)
        scores[np.repeat(np.arange(len(users)), liked.lengths), liked.others] = -np.inf
        best: NDArray[Any] = np.argpartition(-scores[:, self.items[self.drawable]], count - 1, axis=1)[:, :count]
        rows: NDArray[Any] = self.drawable[best]
        return rows

    @cached_property
    def _liked(self) -> Any:
        return self.likes.by_user()


@dataclass(frozen=True)
class MixedNegatives:
    """Draws half of the rows by `draw` and half uniformly from `drawable`."""

    draw: Draw
    drawable: NDArray[np.int64]

    def __call__(self, rows: Mapping[str, Column], random: np.random.Generator) -> NDArray[Any]:
        first, even = self.draw(rows, random), random.choice(self.drawable, _count(rows))
        return np.where(random.random(len(even)) < 0.5, first, even)


def _count(rows: Mapping[str, Column]) -> int:
    return len(np.asarray(rows["user_code"]))


@dataclass(frozen=True)
class NegativeSampling:
    """How negatives are drawn."""

    params: GbmParams
    popularity: NDArray[np.float64]
    items: NDArray[np.int32]
    likes: LikePairs
    drawable: NDArray[np.int64]

    def by(self, knowledge: Knowledge) -> Draw | None:
        params = self.params
        if params.among == "popular":
            return Popular(self.popularity, self.drawable)
        if params.among == "all" or not params.negatives:
            return None
        retrieved = Retrieved(knowledge, self.items, self.likes, params.candidates, self.drawable)
        return retrieved if params.among == "retrieved" else MixedNegatives(retrieved, self.drawable)


@dataclass(frozen=True)
class FoldRows:
    """Rows of all folds as parts of a matrix, the same at each call; cached if they fit into `memory`."""

    layout: TreeLayout
    folds: tuple[tuple[Batches, Knowledge], ...]
    grouped: bool
    memory: int

    def __call__(self) -> Iterator[TreeRows]:
        if self._fits:
            yield from self._cached_parts
        else:
            yield from self._made()

    @property
    def rows(self) -> int:
        return sum(batches.rows_per_epoch() for batches, _ in self.folds)

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return self.rows * (4 * len(self.layout.columns) + 12)

    @property
    def _fits(self) -> bool:
        return self.size <= self.memory

    @cached_property
    def _cached_parts(self) -> list[TreeRows]:
        return list(self._made())

    def _made(self) -> Iterator[TreeRows]:
        for batches, knowledge in self.folds:
            for batch in batches.epoch(0):
                yield self._part(batch, knowledge)

    def _part(self, batch: TrainingBatch, knowledge: Knowledge) -> TreeRows:
        users = batch.columns[self.layout.user].astype(np.int64)
        columns, labels = batch.columns, batch.labels
        if self.grouped:
            order = np.argsort(users, kind="stable")
            columns, labels, users = {name: column[order] for name, column in columns.items()}, labels[order], users[order]
        return TreeRows(self.layout.matrix(columns, knowledge), labels, users)


def described(
    batches: Batches,
    files: tuple[Path | None, ...],
    fold_knowledge: FoldKnowledge,
    layout: TreeLayout,
    drawing: NegativeSampling,
    memory: int,
) -> FoldRows:
    """Returns the rows of the folds; `batches` has everything except the file."""
    some = []
    for path, knowledge in zip(files, fold_knowledge.without, strict=True):
        if path is not None:
            some.append((replace(batches, path=path, batch_size=ROWS, shuffle=False, draw=drawing.by(knowledge)), knowledge))
    return FoldRows(layout, tuple(some), drawing.params.objective == "rank", memory)
