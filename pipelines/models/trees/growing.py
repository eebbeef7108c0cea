"""What a library does for the family: it grows trees over a matrix, some at a time, and gives them as arrays.

Libraries are imported when they are first asked for; they lie in no other module than those of this package.
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
from shared.domain.errors import Invalid

Floats = NDArray[np.float32]
THREADS = min(os.cpu_count() or 1, int(os.environ.get("OMP_NUM_THREADS") or 1_000))
LIBRARIES = {"xgboost": ("xgboost", "xgboost-cpu"), "lightgbm": ("lightgbm", "lightgbm"), "forest": ("sklearn.ensemble", "scikit-learn")}
"""What is imported, and what is installed."""


@dataclass(frozen=True)
class Part:
    """Some rows: groups are of one user each, and lie together."""

    matrix: Floats
    labels: Floats
    groups: NDArray[np.int64]

    @property
    def size(self) -> int:
        return self.matrix.nbytes + self.labels.nbytes + self.groups.nbytes


Parts = Callable[[], Iterator[Part]]
"""The same ones each time."""


class Grower(Protocol):
    @property
    def count(self) -> int:
        """Of the trees."""

    def grow(self, more: int) -> None:
        """So many trees."""

    def margin(self, matrix: Floats) -> Floats:
        """What they add up to."""

    def cut(self, count: int) -> None:
        """Keeps the first ones."""

    def finish(self) -> None:
        """Nothing grows any more."""

    def trees(self) -> Trees: ...

    def model(self) -> bytes:
        """The library's own file; nothing where the arrays are all there is."""


def library(name: str) -> ModuleType:
    """Imported now."""
    module, package = LIBRARIES[name]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise Invalid(
            f"model.params.library: {name} isn't installed where this runs: install {package}, which the extra 'pipelines' has"
        ) from None


def gathered(parts: Parts) -> Part:
    """All rows in one."""
    collected = list(parts())
    return Part(*(np.concatenate([getattr(part, name) for part in collected]) for name in ("matrix", "labels", "groups")))


def depth_of(params: GbmParams) -> int:
    return params.depth or (12 if params.library == "forest" else 6)


def columns_of(params: GbmParams) -> float:
    return params.columns or (0.4 if params.library == "forest" else 1.0)


def leaves_of(params: GbmParams) -> int:
    """Of a tree at most."""
    return min(params.leaves or 2**31 - 1, 1 << depth_of(params))
