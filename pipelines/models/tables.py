"""How wide an embedding is, how large its table gets, and what it may not exceed: known before any training.

A table has one row for each code. Its width follows from the cardinality (T-07), padded to whole lines of a CPU's cache, unless the spec
says one; a warm run keeps its parent's, since vectors can't change their length.
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

# ONNX files are protobuf messages, which end at 2 GiB (2,147 MB). Weights may lie beside one, vocabularies lie in it, and so does the rest.
EXPORT_LIMIT = 2_100_000_000
# What one entry of a LabelEncoder takes at most: a tag and a varint for its code, a tag and a varint or a length for its key.
_ENTRY = 22
PRECISION = 4
"""Bytes of a weight: float32."""
LINE = 64
"""Bytes that widths by rule are padded to: a cache line of a CPU, and four times the 16 bytes that a GPU reads at once."""
KEY = 8
"""Bytes of what is looked up by, as reports count them."""
REMEDY = "a smaller width or a larger min_count"
Pooling = Literal["mean", "sum"]


@dataclass(frozen=True)
class Table:
    """One code column of the model: `length` is None for one code a row."""

    column: str
    cardinality: int
    width: int
    length: int | None
    pooling: Pooling = "mean"
    """What becomes of the vectors of several codes. Padding is none of them."""

    @property
    def size(self) -> int:
        return self.cardinality * self.width * PRECISION

    @property
    def lookup(self) -> int:
        """Bytes that a row reads of it at most: vectors, and a key of eight bytes for each."""
        return (self.length or 1) * (self.width * PRECISION + KEY)


def width_by_rule(cardinality: int) -> int:
    return min(512, max(16, round(1.6 * math.pow(cardinality, 0.56))))


def padded(width: int) -> int:
    """To whole lines."""
    step = LINE // PRECISION
    return -(-width // step) * step


def plan_tables(graph: Graph, width: int | None, parent: Mapping[str, int] | None = None, pooling: Pooling = "mean") -> tuple[Table, ...]:
    """The tables of a fitted graph; `parent` gives the widths that a warm run must keep."""
    if parent is not None and width is not None and any(parent_width != width for parent_width in parent.values()):
        raise Invalid(f"model.params.width: {width} is not the parent's width: a warm run can't change it, start a full one")
    return tuple(
        Table(name, size, parent[name] if parent is not None else width or padded(width_by_rule(size)), length, pooling)
        for name, size, length in ((feature.name, feature.cardinality or 0, feature.width) for feature in graph.codes)
    )


def check_size(graph: Graph, weights: int, remedy: str = REMEDY, memory: int | None = None) -> None:
    """Before training: whether the vocabularies will fit into one exported graph, and so many bytes of weights into memory."""
    words = sum(_size(frame) for operator in graph.operators for frame in operator.saved().frames.values() if len(frame) <= LIMIT)
    if words > EXPORT_LIMIT:
        raise Invalid(
            f"features: the vocabularies take {words / 1e9:.1f} GB; one exported graph holds {EXPORT_LIMIT / 1e9:.1f} GB: choose a larger"
            " min_count or a smaller serve.vocabulary_limit"
        )
    check_memory(weights, memory, remedy)


def check_memory(weights: int, memory: int | None, remedy: str = REMEDY) -> None:
    """None: what there is. Training and export take more than the weights alone, so this refuses only what is certain not to fit."""
    there = psutil.virtual_memory().available if memory is None else memory
    if weights > there:
        raise Invalid(
            f"model.params: the model's weights take {weights / 1e9:.1f} GB, and {there / 1e9:.1f} GB are there: choose {remedy},"
            " or more memory (resources.train.memory)"
        )


def _size(frame: pl.DataFrame) -> int:
    """Of a fitted table in the graph, about."""
    text = sum(int(frame[name].str.len_bytes().sum() or 0) for name, dtype in frame.schema.items() if dtype == pl.String)
    return len(frame) * _ENTRY * max(1, len(frame.columns) - 1) + text


def report(tables: Iterable[Table]) -> list[dict[str, Any]]:
    return [asdict(table) | {"bytes": table.size} for table in tables]
