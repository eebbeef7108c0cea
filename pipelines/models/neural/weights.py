"""Arrays of a neural model: drawn from a seed (the same on every framework), stored in `.npz` by path, grown in warm runs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pipelines.models.neural.architecture import Architecture, table_path
from pipelines.models.new_row_init import grown
from shared.contracts.retraining import NewRows
from shared.domain.errors import Invalid

WEIGHTS = "weights.npz"
Weights = dict[str, NDArray[np.float32]]
SPREAD = 0.05
"""Vectors begin uniformly between this and its negative."""


def begin(architecture: Architecture, seed: int) -> Weights:
    """Draws each array from the seed and its own path, so that another table leaves the others unchanged."""
    tables = {table_path(table): (table.cardinality, table.width) for table in architecture.tables}
    weights = {path: next(rows_begun(path, *shape, seed, shape[0])) for path, shape in tables.items()}
    return weights | begin_layers(architecture, seed)


def begin_layers(architecture: Architecture, seed: int) -> Weights:
    """Returns the arrays of `begin` without the tables."""
    tables = {table_path(table) for table in architecture.tables}
    weights = {path: _begun(path, shape, seed) for path, shape in architecture.shapes.items() if path not in tables}
    return weights | {path: np.full(shape, path.endswith("/variance"), np.float32) for path, shape in architecture.moving.items()}


def rows_begun(path: str, rows: int, width: int, seed: int, at_once: int) -> Iterator[NDArray[np.float32]]:
    """Yields a table's rows of `begin`, `at_once` rows at a time."""
    random = _random(path, seed)
    for start in range(0, rows, at_once):
        yield _even(random, (min(at_once, rows - start), width), SPREAD)


def _begun(path: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    if len(shape) < 2:
        return np.full(shape, path.endswith("/gamma"), np.float32)
    return _even(_random(path, seed), shape, math.sqrt(6 / sum(shape)))  # Glorot


def _random(path: str, seed: int) -> np.random.Generator:
    return np.random.default_rng((seed, zlib.crc32(path.encode())))


def _even(random: np.random.Generator, shape: tuple[int, ...], spread: float) -> NDArray[np.float32]:
    values, limit = random.random(shape, dtype=np.float32), np.float32(spread)
    values *= 2 * limit
    values -= limit
    return values


def grow(architecture: Architecture, parent: Mapping[str, NDArray[np.float32]], rule: NewRows = "mean", seed: int = 1) -> Weights:
    """Returns first weights of a warm run: the parent's.

    Embedding tables may grow: old rows keep their vectors, and new rows begin by the rule (pipelines.models.new_row_init). Any other
    difference in shape is refused.
    """
    tables, wanted = {table_path(table) for table in architecture.tables}, architecture.shapes | architecture.moving
    if left := sorted(set(parent) - set(wanted)):
        raise Invalid(
            f"model.params: the parent has '{left[0]}', but this model does not: a warm run cannot change layers; start a full run"
        )
    weights: Weights = {}
    for path, shape in wanted.items():
        old = _parent_array(path, shape, parent, path in tables)
        weights[path] = old.copy() if old.shape == shape else grown(old, next(rows_begun(path, shape[0], shape[1], seed, shape[0])), rule)
    return weights


def _parent_array(path: str, shape: tuple[int, ...], parent: Mapping[str, NDArray[np.float32]], table: bool) -> NDArray[np.float32]:
    old = parent.get(path)
    if old is None or old.shape[1:] != shape[1:] or old.shape[0] > shape[0] or (old.shape != shape and not table):
        raise Invalid(f"model.params: '{path}' differs from the parent's: a warm run cannot change layers; start a full run")
    return old
