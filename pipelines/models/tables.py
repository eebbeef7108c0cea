"""Embedding tables: their widths, their sizes and the size limits, all known before training.

A table has a row for each code. Its width follows from the cardinality (T-07), padded to whole cache lines of a CPU, unless the spec sets a
width; a warm run keeps the parent's width, since vectors cannot change their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import polars as pl
import psutil

from pipelines.features.graph import Graph
from pipelines.features.stored import LIMIT
from shared.domain.errors import Invalid

# ONNX files are protobuf messages, which end at 2 GiB (2,147 MB). Weights can be outside, vocabularies and the rest not.
EXPORT_LIMIT = 2_100_000_000
# Most bytes of an entry of a LabelEncoder: a tag and a varint for the code, a tag and a varint or a length for the key.
_ENTRY = 22
PRECISION = 4
"""Bytes of a weight: float32."""
LINE = 64
"""Bytes that default widths are padded to: a cache line of a CPU, four times the 16 bytes that a GPU reads at once."""
KEY = 8
"""Bytes of a lookup key, as reports count them."""
REMEDY = "a smaller width or a larger min_count"
Pooling = Literal["mean", "sum"]


@dataclass(frozen=True)
class Table:
    """A code column of the model; `length` is None for one code per row."""

    column: str
    cardinality: int
    width: int
    length: int | None
    pooling: Pooling = "mean"
    """How the vectors of several codes are combined; padding does not count."""

    @property
    def size(self) -> int:
        return self.cardinality * self.width * PRECISION

    @property
    def lookup(self) -> int:
        """Most bytes that a row reads: vectors, and an eight-byte key for each."""
        return (self.length or 1) * (self.width * PRECISION + KEY)


def width_by_rule(cardinality: int) -> int:
    return min(512, max(16, round(1.6 * math.pow(cardinality, 0.56))))


def padded(width: int) -> int:
    """Rounds a width up to whole cache lines."""
    step = LINE // PRECISION
    return -(-width // step) * step


def plan_tables(graph: Graph, width: int | None, parent: Mapping[str, int] | None = None, pooling: Pooling = "mean") -> tuple[Table, ...]:
    """Returns the tables of a fitted graph; `parent` gives the widths that a warm run must keep."""
    if parent is not None and width is not None and any(parent_width != width for parent_width in parent.values()):
        raise Invalid(f"model.params.width: {width} is not the parent's width: a warm run cannot change it; start a full run")
    return tuple(
        Table(name, size, parent[name] if parent is not None else width or padded(width_by_rule(size)), length, pooling)
        for name, size, length in ((feature.name, feature.cardinality or 0, feature.width) for feature in graph.codes)
    )


def check_size(graph: Graph, weights: int, remedy: str = REMEDY, memory: int | None = None) -> None:
    """Raises Invalid, before training, if the vocabularies do not fit into one exported graph, or `weights` bytes not into memory."""
    words = sum(_size(frame) for operator in graph.operators for frame in operator.saved().frames.values() if len(frame) <= LIMIT)
    if words > EXPORT_LIMIT:
        raise Invalid(
            f"features: the vocabularies take {words / 1e9:.1f} GB; an exported graph holds {EXPORT_LIMIT / 1e9:.1f} GB: choose a"
            " larger min_count or a smaller serve.vocabulary_limit"
        )
    check_memory(weights, memory, remedy)


def check_memory(weights: int, memory: int | None, remedy: str = REMEDY) -> None:
    """Raises Invalid if the weights alone exceed `memory`, or the available memory if None; training and export take more."""
    there = psutil.virtual_memory().available if memory is None else memory
    if weights > there:
        raise Invalid(
            f"model.params: the model's weights take {weights / 1e9:.1f} GB, but {there / 1e9:.1f} GB are available: choose {remedy},"
            " or more memory (resources.train.memory)"
        )


def _size(frame: pl.DataFrame) -> int:
    """Returns the approximate bytes of a fitted table in the graph."""
    text = sum(int(frame[name].str.len_bytes().sum() or 0) for name, dtype in frame.schema.items() if dtype == pl.String)
    return len(frame) * _ENTRY * max(1, len(frame.columns) - 1) + text


def report(tables: Iterable[Table]) -> list[dict[str, Any]]:
    return [asdict(table) | {"bytes": table.size} for table in tables]
