"""Interface of a tree library: it grows trees over a matrix in rounds and returns them as arrays.

Libraries are imported on first use, and only by modules of this package.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.models.trees.ensemble import Trees
from shared.contracts.families import GbmParams
from shared.contracts.families.trees import TREE_MODULES
from shared.domain.errors import Invalid

Floats = NDArray[np.float32]
THREADS = min(os.cpu_count() or 1, int(os.environ.get("OMP_NUM_THREADS") or 1_000))


@dataclass(frozen=True)
class TreeRows:
    """Some rows; rows of the same group (a user) are adjacent."""

    matrix: Floats
    labels: Floats
    groups: NDArray[np.int64]

    @property
    def size(self) -> int:
        return self.matrix.nbytes + self.labels.nbytes + self.groups.nbytes


Parts = Callable[[], Iterator[TreeRows]]
"""Yields the same parts at each call."""


class Grower(Protocol):
    @property
    def count(self) -> int:
        """Number of trees."""

    def grow(self, more: int) -> None:
        """Grows `more` trees."""

    def margin(self, matrix: Floats) -> Floats:
        """Returns the sum of the trees."""

    def cut(self, count: int) -> None:
        """Keeps the first `count` trees."""

    def finish(self) -> None:
        """Ends the growth."""

    def trees(self) -> Trees: ...

    def model(self) -> bytes:
        """Returns the library's own file; empty if only arrays are saved."""


def library(name: str) -> ModuleType:
    """Imports the library."""
    try:
        importlib.import_module("treelite")
        return importlib.import_module("sklearn.ensemble" if name == "forest" else name)
    except ModuleNotFoundError as error:
        if error.name not in ("treelite", TREE_MODULES[name]):
            raise
        raise Invalid(f"model.params.library: {error.name} is not installed where this runs: install eyas[trees]") from None


def gathered(parts: Parts) -> TreeRows:
    """Returns all rows as a single part."""
    collected = list(parts())
    return TreeRows(*(np.concatenate([getattr(part, name) for part in collected]) for name in ("matrix", "labels", "groups")))


def depth_of(params: GbmParams) -> int:
    return params.depth or (12 if params.library == "forest" else 6)


def columns_of(params: GbmParams) -> float:
    return params.columns or (0.4 if params.library == "forest" else 1.0)


def leaves_of(params: GbmParams) -> int:
    """Returns the most leaves of a tree."""
    return min(params.leaves or 2**31 - 1, 1 << depth_of(params))
