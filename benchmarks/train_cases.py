"""What the training benchmark trains: models of one family by their tables and layers, and batches that everybody gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from pipelines.inputs.batches import Batch
from pipelines.models.tables import Table, padded, width_by_rule

GENRES = 20


@dataclass(frozen=True)
class Case:
    """An mlp. Codes are drawn as tastes are: few of them often."""

    name: str
    tables: tuple[Table, ...]
    layers: tuple[int, ...]
    batch: int
    seed: int = 1

    def batches(self, count: int) -> Iterator[Batch]:
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
            yield Batch(columns, likes.astype(np.float32))

    @property
    def width(self) -> int:
        return sum(one.width for one in self.tables)

    @property
    def flops(self) -> float:
        """Of a row's matrix products: forward, and two of the same size backward."""
        return 6.0 * sum(one * other for one, other in pairwise((self.width, *self.layers, 1)))

    @property
    def bytes(self) -> float:
        """Of a row's embeddings: read, laid side by side, and their gradient, were nothing else touched."""
        return 3.0 * 4 * sum(one.width * (one.length or 1) for one in self.tables)


def movielens(batch: int, layers: tuple[int, ...] = (128, 128, 128)) -> Case:
    """ml-1m's users and items, widths by rule."""
    sizes = {"user": 6_042, "item": 3_708}
    tables = [Table(name, size, padded(width_by_rule(size)), None) for name, size in sizes.items()]
    return Case("mlp on ml-1m's shape", (*tables, Table("genres", GENRES, 16, 6)), layers, batch)


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
