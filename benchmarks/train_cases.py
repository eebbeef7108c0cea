"""Cases of the training benchmark: models by their tables and layers, and batches that all contenders get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.models.tables import Table, padded, width_by_rule
from pipelines.training.batch_size import IN_BATCH
from pipelines.training.likes import LikePairs
from pipelines.training.mf_contrastive import CELLS, STEPS, USERS

GENRES = 20
Family = Literal["mlp", "wide_deep", "dlrm", "neumf", "two_tower"]
FAMILIES: tuple[Family, ...] = get_args(Family)


@dataclass(frozen=True)
class Case:
    """Few codes are drawn often. Of a `neumf`, the first `product` numbers of a vector are multiplied. A row has `numbers` numbers."""

    name: str
    tables: tuple[Table, ...]
    layers: tuple[int, ...]
    batch: int
    seed: int = 1
    family: Family = "mlp"
    product: int = 0
    numbers: int = 0

    def batches(self, count: int) -> Iterator[TrainingBatch]:
        random = np.random.default_rng(self.seed)
        for _ in range(count):
            columns = dict[str, NDArray[Any]]()
            for table in self.tables:
                shape = (self.batch,) if table.length is None else (self.batch, table.length)
                codes = (table.cardinality * random.random(shape) ** 3).astype(np.int32)
                if table.length is not None:
                    lengths = random.integers(1, table.length + 1, self.batch)
                    codes = np.where(np.arange(table.length) < lengths[:, None], np.maximum(codes, 2), 0).astype(np.int32)
                columns[table.column] = codes
            columns |= {name: random.random(self.batch, dtype=np.float32) for name in self.number_names}
            first, second = self.tables[0].column, self.tables[1].column
            likes = (columns[first] * 7 + columns[second] * 13) % 5 < 2
            labels = np.ones(self.batch) if self.family == "two_tower" else likes  # each row of two towers is a like
            yield TrainingBatch(columns, labels.astype(np.float32))

    @property
    def number_names(self) -> tuple[str, ...]:
        return tuple(f"number_{at}" for at in range(self.numbers))

    @property
    def rows(self) -> float:
        """Rows of a step."""
        return self.batch

    @property
    def width(self) -> int:
        """Of the input of the layers."""
        return sum(table.width - self.product for table in self.tables)

    @property
    def flops(self) -> float:
        """Of a row's matrix products: forward, and two of the same size backward."""
        return 6.0 * (self.product + sum(before * after for before, after in pairwise((self.width, *self.layers, 1))))

    @property
    def bytes(self) -> float:
        """Of a row's embeddings: read, concatenated, and their gradient, were nothing else touched."""
        return 3.0 * 4 * sum(table.width * (table.length or 1) for table in self.tables)


@dataclass(frozen=True)
class LikesCase:
    """The dot product: a step takes some users with all of their likes, and the whole catalogue. Few items are liked often."""

    name: str
    users: int
    items: int
    each: int
    """Likes of a user, on average."""
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
        random, drawn = np.random.default_rng(self.seed), 3 * self.users * self.each
        users, items = random.integers(0, self.users, drawn), (self.items * random.random(drawn) ** 2).astype(np.int64)
        pairs = random.permutation(np.unique(np.stack([users, items]), axis=1), axis=1)[:, : self.users * self.each]
        return LikePairs(pairs[0], pairs[1], self.users, self.items)

    def batches(self, count: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Users, and the share of each like among those of its user, in rows as long as the catalogue."""
        random, likes = np.random.default_rng(self.seed), self.pairs().by_user()
        for _ in range(count):
            users = random.choice(self.users, self.batch, replace=False)
            shares = np.zeros((self.batch, self.items), np.float32)
            for row, user in enumerate(users):
                items = likes.of(user)
                shares[row, items] = 1 / max(len(items), 1)
            yield users, shares


LIKES = LikesCase("mf by softmax on ml-1m's shape", 6_040, 3_706, 165, 192)
"""ml-1m's, with the width that `mf` has there."""


def _keys(users: int, items: int, *widths: int) -> tuple[Table, Table]:
    return Table("user", users, widths[0], None), Table("item", items, widths[-1], None)


def movielens(batch: int) -> Case:
    """ml-1m's users and items, widths by rule."""
    tables = _keys(6_042, 3_708, *(padded(width_by_rule(size)) for size in (6_042, 3_708)))
    return Case("mlp on ml-1m's shape", (*tables, Table("genres", GENRES, 16, 6)), (128, 128, 128), batch)


def neumf(batch: int) -> Case:
    """ml-1m's users and items, widths and layers of the preset."""
    return Case("neumf on ml-1m's shape", _keys(6_042, 3_708, 128), (64, 32, 16), batch, family="neumf", product=64)


def sized(family: Family, rows: int, batch: int) -> Case:
    """A family with its default layers, and tables of that many users and items with 32 numbers each."""
    keys, name = _keys(rows, rows, 32), f"{family}, tables of {rows:,} rows"
    if family == "neumf":
        return Case(name, keys, (16, 32, 16), batch, family=family, product=16)
    tables = (*keys, Table("genres", GENRES, 32, 6, "sum" if family == "wide_deep" else "mean"))
    layers = {"mlp": (128, 128, 128), "wide_deep": (128, 128, 128), "dlrm": (128, 64), "two_tower": (128,)}[family]
    return Case(name, tables, layers, min(batch, IN_BATCH) if family == "two_tower" else batch, family=family, numbers=2)


def grown(batch: int, times: int, rows: int) -> Case:
    """A table that grows, and a constant one."""
    return Case(f"table of {rows * times:,} x 32", _keys(rows * times, 2_000, 32), (32,), batch)


def many(batch: int, count: int = 26) -> Case:
    """As Criteo's: many small columns of one width."""
    tables = tuple(Table(f"c{number}", 1_000 * (number % 7 + 1), 16, None) for number in range(count))
    return Case(f"{count} tables of width 16", tables, (64, 32), batch)


def odd(batch: int, *, aligned: bool) -> Case:
    """Widths by rule, or padded."""
    sizes = {"user": 30_011, "item": 9_000, "tag": 4_002, "year": 130}
    tables = tuple(Table(name, size, width_by_rule(size), None) for name, size in sizes.items())
    if aligned:
        tables = tuple(replace(table, width=padded(table.width)) for table in tables)
    return Case(f"widths by rule, {'padded' if aligned else 'as they are'}", tables, (128, 64), batch)


def deep(batch: int) -> Case:
    """Where the layers are the work."""
    return Case("layers 512-256-128", _keys(6_042, 3_708, 64), (512, 256, 128), batch)
