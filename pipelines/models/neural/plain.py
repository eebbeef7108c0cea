"""A trained network in NumPy, for scores without a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import NULL
from pipelines.inputs.tables import Codes
from pipelines.models.neural.architecture import Architecture, table_path
from pipelines.models.neural.network import FLATTEST, SHORTEST, SMALLEST, Operations
from pipelines.models.neural.precision import round_mantissa
from pipelines.models.tables import Table

Floats = NDArray[np.float32]
BLOCK = 8_192
"""Rows per pass: the activations stay in the CPU cache."""


class NumpyOperations(Operations):
    """Operations in NumPy; inputs of matrix products are rounded to `bits` mantissa bits, unless `bits` is None."""

    def __init__(self, weights: Mapping[str, Floats], bits: int | None = None) -> None:
        super().__init__(np, weights)
        self._bits = bits

    def dense(self, rows: Floats, kernel: Floats, bias: Floats) -> Floats:
        output: Floats = round_mantissa(rows, self._bits) @ round_mantissa(kernel, self._bits)
        output += bias
        return output

    def relu(self, rows: Floats) -> Floats:
        return np.maximum(rows, 0)

    def interact(self, parts: Sequence[Floats], places: Sequence[int]) -> Floats:
        vectors = round_mantissa(np.stack(parts, axis=1), self._bits)
        square = vectors @ vectors.transpose(0, 2, 1)
        return square.reshape(len(square), -1)[:, places]

    def scaled(self, rows: Floats, length: float) -> Floats:
        root = np.sqrt((rows * rows).sum(axis=1, keepdims=True) + np.float32(SHORTEST))
        return rows * (np.float32(length) / root)  # type: ignore[no-any-return]

    def normalise(self, rows: Floats, path: str) -> Floats:
        gamma, beta, mean, variance = (self._weights[f"{path}/{name}"] for name in ("gamma", "beta", "mean", "variance"))
        scale = gamma / np.sqrt(variance + np.float32(SMALLEST))
        output: Floats = rows * scale
        output += beta - mean * scale
        return output

    def level(self, rows: Floats, gamma: Floats, beta: Floats) -> Floats:
        return level(rows, gamma, beta)


def score(architecture: Architecture, weights: Mapping[str, Floats], columns: Codes) -> Floats:
    """Returns a score per row."""
    logits = architecture.calibration.apply(outputs(architecture, weights, columns)[:, 0])
    return sigmoid(logits) if architecture.output == "sigmoid" else logits


def outputs(architecture: Architecture, weights: Mapping[str, Floats], columns: Codes, bits: int | None = None) -> Floats:
    """Returns the last node's output, [rows, width]."""
    on = NumpyOperations(weights, bits)
    blocks: list[Floats] = []
    for start in range(0, max(1, len(next(iter(columns.values())))), BLOCK):
        rows = slice(start, start + BLOCK)
        features = {
            table.column: looked_up(table, weights[table_path(table)], columns[table.column][rows]) for table in architecture.tables
        }
        for name, width in architecture.numbers:
            features[name] = columns[name][rows, None] if width is None else columns[name][rows]
        blocks.append(architecture.network.apply(on, features))
    return np.concatenate(blocks)


def looked_up(table: Table, vectors: Floats, codes: NDArray[Any]) -> Floats:
    """Returns [rows, width]: vectors, or the mean or sum of several codes' vectors."""
    pooled: Floats
    if table.length is None:
        pooled = vectors[codes]
        return pooled
    pooled = np.zeros((len(codes), table.width), vectors.dtype)
    there = codes != NULL
    for at in range(codes.shape[1]):
        rows = np.flatnonzero(there[:, at])
        pooled[rows] += vectors[codes[rows, at]]
    if table.pooling == "mean":
        pooled /= np.maximum(there.sum(axis=1, keepdims=True), 1).astype(np.float32)
    return pooled


def level(rows: Floats, gamma: Floats, beta: Floats, least: float = FLATTEST) -> Floats:
    """Normalises each row by its own mean and variance; `least` is added to the variance."""
    output: Floats = rows - rows.mean(axis=1, keepdims=True)
    output /= np.sqrt((output * output).mean(axis=1, keepdims=True) + np.float32(least))
    output *= gamma
    output += beta
    return output


def sigmoid(logits: Floats) -> Floats:
    """Computes the sigmoid without overflow."""
    small = np.exp(-np.abs(logits))
    probabilities: Floats = (np.where(logits >= 0, np.float32(1), small) / (1 + small)).astype(np.float32)
    return probabilities
