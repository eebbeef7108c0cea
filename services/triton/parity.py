"""Parity of a served unit with training on the real server: each feature, then the score, for the same rows.

Features must be equal value by value: another code selects another vector, however close the scores are. A gate limits the difference of
scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.domain.errors import BadData
from shared.serving.signature import Feature, Signature

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
Answer = Callable[[Columns], Mapping[str, Array]]
"""From raw columns to the unit's outputs."""
_BATCH = 256
_NEAR = 1e-5
_NAMED = 5


@dataclass(frozen=True)
class Skew:
    """A feature that the unit computes differently from training, with its first differing row."""

    column: str
    rows: int
    row: int
    raw: str
    trained: str
    served: str

    def __str__(self) -> str:
        rows = f"{self.rows:,} row{'s' if self.rows > 1 else ''}"
        first = f"first in row {self.row}: {self.raw} is {self.trained} in training, {self.served} in serving"
        return f"feature '{self.column}' differs in {rows}, {first}"


@dataclass(frozen=True)
class Parity:
    difference: float
    """Largest difference between two scores; `row` is its row."""
    row: int
    rows: int
    skewed: tuple[Skew, ...]


def compare(answer: Answer, signature: Signature, rows: Columns) -> Parity:
    """Compares all rows. `rows` holds inputs, and training's score and features by output name. Raises BadData for non-finite values."""
    expected = rows[signature.output]
    raw = {model_input.name: rows[model_input.name] for model_input in signature.inputs}
    for name in _floats(signature):
        _finite(rows[name], name, 0, "training")
    apart = np.zeros(len(expected))
    wrong = {feature.output: np.zeros(len(expected), dtype=bool) for feature in signature.features}
    first_differences: dict[str, tuple[int, Array]] = {}
    for start, stop in _batches(len(expected)):
        outputs = answer({name: column[start:stop] for name, column in raw.items()})
        for name in _floats(signature):
            _finite(outputs[name], name, start, "the served unit")
        apart[start:stop] = np.abs(outputs[signature.output].astype(np.float64) - expected[start:stop])
        for feature in signature.features:
            differs = _differs(feature, outputs[feature.output], rows[feature.output][start:stop])
            wrong[feature.output][start:stop] = differs
            if differs.any() and feature.output not in first_differences:
                first = int(np.argmax(differs))
                first_differences[feature.output] = (start + first, outputs[feature.output][first])
    skewed = tuple(
        Skew(
            feature.column,
            int(wrong[feature.output].sum()),
            row,
            _raw(feature, raw, row),
            format_value(rows[feature.output][row]),
            format_value(served),
        )
        for feature in signature.features
        if feature.output in first_differences
        for row, served in [first_differences[feature.output]]
    )
    return Parity(float(apart.max()), int(apart.argmax()), len(expected), skewed)


def _raw(feature: Feature, raw: Columns, row: int) -> str:
    """Formats the feature's inputs."""
    if len(feature.of or (feature.column,)) == 1:
        return format_value(raw[(feature.of or (feature.column,))[0]][row])
    return ", ".join(f"{name} {format_value(raw[name][row])}" for name in feature.of)


def refuse_skewed(parity: Parity) -> None:
    """Raises BadData that names each feature computed differently from training."""
    if parity.skewed:
        more = f"; and {len(parity.skewed) - _NAMED} more" if len(parity.skewed) > _NAMED else ""
        listed = "; ".join(str(skew) for skew in parity.skewed[:_NAMED])
        raise BadData(f"parity: {parity.rows:,} rows compared, {listed}{more}: the exported features differ from those of training")


def _floats(signature: Signature) -> list[str]:
    return [signature.output, *(feature.output for feature in signature.features if feature.dtype == "float32" and not feature.missing)]


def _finite(values: Array, name: str, start: int, who: str) -> None:
    good = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not good.all():
        row = int(np.argmin(good))
        subject = "scores" if "/" not in name else f"'{name}'"
        value = format_value(values[row])
        raise BadData(f"parity.npz, row {start + row}: {who} returned {value}; correct the model, its {subject} must be finite")


def _differs(feature: Feature, served: Array, trained: Array) -> Array:
    """Returns which rows differ."""
    if served.shape != trained.shape:
        raise BadData(f"parity: feature '{feature.column}' has the shape {served.shape} in serving, {trained.shape} in training")
    same: Any = (
        np.isclose(served, trained, rtol=_NEAR, atol=_NEAR, equal_nan=feature.missing) if feature.dtype == "float32" else served == trained
    )
    differs: Array = np.logical_not(np.asarray(same).reshape(len(same), -1).all(axis=1))
    return differs


def format_value(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def _batches(rows: int) -> Iterator[tuple[int, int]]:
    """Starts with a single row, which shows a dependence on neighbours in the batch."""
    yield 0, 1
    for start in range(0, rows, _BATCH):
        yield start, min(start + _BATCH, rows)
