"""What the training benchmark trains: models by their tables and layers, and batches that everybody gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.models.tables import Table, padded, width_by_rule
from pipelines.training.likes import LikePairs
from pipelines.training.mf_contrastive import CELLS, STEPS, USERS

GENRES = 20


@dataclass(frozen=True)
class Case:
    """Codes are drawn as tastes are: few of them often. Of a `neumf`, the first `product` numbers of a vector are multiplied."""

    name: str
    tables: tuple[Table, ...]
    layers: tuple[int, ...]
    batch: int
    seed: int = 1
    family: Literal["mlp", "neumf"] = "mlp"
    product: int = 0

    def batches(self, count: int) -> Iterator[TrainingBatch]:
        chance = np.random.default_rng(self.seed)
        for _ in range(count):
            columns = {}
            for one in self.tables:
                shape = (self.batch,) if one.length is None else (self.batch, one.length)
                codes = (one.cardinality * chance.random(shape) ** 3).astype(np.int32)
                if one.length is not None:
                    lengths = chance.integers(1, one.length + 1, self.batch)
                    codes = np.where(np.arange(one.length) < lengths[:, None], np.maximum(codes, 2), 0).astype(np.int32)
                columns[one.column] = codes
            first, second = self.tables[0].column, self.tables[1].column
            likes = (columns[first] * 7 + columns[second] * 13) % 5 < 2
            yield TrainingBatch(columns, likes.astype(np.float32))

    @property
    def rows(self) -> float:
        """That a step learns from."""
        return self.batch

    @property
    def width(self) -> int:
        """Of what the layers are given."""
        return sum(one.width - self.product for one in self.tables)

    @property
    def flops(self) -> float:
        """Of a row's matrix products: forward, and two of the same size backward."""
        return 6.0 * (self.product + sum(one * other for one, other in pairwise((self.width, *self.layers, 1))))

    @property
    def bytes(self) -> float:
        """Of a row's embeddings: read, laid side by side, and their gradient, were nothing else touched."""
        return 3.0 * 4 * sum(one.width * (one.length or 1) for one in self.tables)


@dataclass(frozen=True)
class LikesCase:
    """The dot product: a step takes some users with all that they liked, and the whole catalogue. Few items are liked often."""

    name: str
    users: int
    items: int
    each: int
    """What a user likes on average."""
    width: int
    seed: int = 1

    @property
    def batch(self) -> int:
        """Users of a step, as ours chooses them."""
        return max(1, min(USERS, CELLS // self.items, self.users // STEPS))

    @property
    def rows(self) -> float:
        """Likes of a step, on average."""
        return self.batch * self.each

    @property
    def flops(self) -> float:
        """Of a like's share of its step's matrix products: forward, and two of the same size backward."""
        return 6.0 * self.width * self.items / self.each

    @property
    def bytes(self) -> float:
        """Of a like's share of a step's vectors: read, and their gradient."""
        return 3.0 * 4 * self.width * (self.batch + self.items) / self.rows

    def pairs(self) -> LikePairs:
        chance, drawn = np.random.default_rng(self.seed), 3 * self.users * self.each
        users, items = chance.integers(0, self.users, drawn), (self.items * chance.random(drawn) ** 2).astype(np.int64)
        kept = chance.permutation(np.unique(np.stack([users, items]), axis=1), axis=1)[:, : self.users * self.each]
        return LikePairs(kept[0], kept[1], self.users, self.items)

    def batches(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Users, and each like's share of its user's, in rows as long as the catalogue."""
        chance, likes = np.random.default_rng(self.seed), self.pairs().by_user()
        for _ in range(count):
            users = chance.choice(self.users, self.batch, replace=False)
            shares = np.zeros((self.batch, self.items), np.float32)
            for row, user in enumerate(users):
                mine = likes.of(user)
                shares[row, mine] = 1 / max(len(mine), 1)
            yield users, shares


def movielens_likes() -> LikesCase:
    """ml-1m's, with the width that `mf` has there."""
    return LikesCase("mf by softmax on ml-1m's shape", 6_040, 3_706, 165, 192)


def movielens(batch: int, layers: tuple[int, ...] = (128, 128, 128)) -> Case:
    """ml-1m's users and items, widths by rule."""
    sizes = {"user": 6_042, "item": 3_708}
    tables = [Table(name, size, padded(width_by_rule(size)), None) for name, size in sizes.items()]
    return Case("mlp on ml-1m's shape", (*tables, Table("genres", GENRES, 16, 6)), layers, batch)


def neumf(batch: int) -> Case:
    """ml-1m's users and items, widths and layers of the preset."""
    tables = (Table("user", 6_042, 128, None), Table("item", 3_708, 128, None))
    return Case("neumf on ml-1m's shape", tables, (64, 32, 16), batch, family="neumf", product=64)


def grown(batch: int, times: int, rows: int) -> Case:
    """One table that grows, one that doesn't."""
    tables = (Table("user", rows * times, 32, None), Table("item", 2_000, 32, None))
    return Case(f"table of {rows * times:,} x 32", tables, (32,), batch)


def many(batch: int, count: int = 26) -> Case:
    """As Criteo's: many small columns of one width."""
    tables = tuple(Table(f"c{number}", 1_000 * (number % 7 + 1), 16, None) for number in range(count))
    return Case(f"{count} tables of width 16", tables, (64, 32), batch)


def odd(batch: int, *, aligned: bool) -> Case:
    """Widths as the rule has them, or padded."""
    sizes = {"user": 30_011, "item": 9_000, "tag": 4_002, "year": 130}
    tables = tuple(Table(name, size, width_by_rule(size), None) for name, size in sizes.items())
    case = Case("widths by rule", tables, (128, 64), batch)
    return replace(case, tables=tuple(replace(one, width=padded(one.width)) for one in tables)) if aligned else case


def deep(batch: int) -> Case:
    """Where the layers are the work."""
    tables = (Table("user", 6_042, 64, None), Table("item", 3_708, 64, None))
    return Case("layers 512-256-128", tables, (512, 256, 128), batch)
