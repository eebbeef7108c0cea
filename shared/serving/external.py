"""Check of an ONNX graph's external weight files: they must be the one file that export writes.

ONNX allows a tensor in any file that a path leads to. So this check runs before a runtime opens the graph: the location must be
`weights.bin`, and the referenced range must lie within it. The graph is not loaded: its protobuf is scanned in place, and only if it
contains the word `location`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shared.domain.errors import BadData
from shared.serving.signature import WEIGHTS

Kind = Literal["model", "graph", "node", "attribute", "tensor", "sparse", "function", "training", "entry"]
PARTS: Mapping[Kind, Mapping[int, Kind]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "tensor": {13: "entry"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
    "entry": {},
}
"""Fields of onnx.proto that lead to tensors, by number; a test compares them with the package's own description."""
_KEY, _VALUE = 1, 2
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_DIGITS = 19
_DEEPEST = 100
"""Maximum nesting of messages, as in protobuf itself."""


@dataclass(frozen=True)
class TensorEntries:
    """External data entries of a tensor."""

    words: tuple[tuple[str, str], ...]

    def every(self, key: str) -> list[str]:
        return [value for name, value in self.words if name == key]


def places(path: Path) -> list[TensorEntries]:
    """Returns the entries of all tensors with external data; raises BadData if the graph cannot be read."""
    if path.stat().st_size == 0:
        return []
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b"location") < 0:
            return []
        try:
            return list(_places(content, 0, len(content), "model", 0))
        except (ValueError, IndexError):
            raise BadData(f"{path.name}: truncated, or not an ONNX file") from None


def refuse_others(path: Path, weights: int | None) -> None:
    """Raises BadData unless all external data is in `weights.bin` of `weights` bytes; None: the unit has no such file."""
    for place in places(path):
        for location in place.every("location"):
            if location != WEIGHTS:
                raise BadData(f"{path.name}: the graph reads weights from {location!r}; only {WEIGHTS} beside it is allowed")
            if weights is None:
                raise BadData(f"{path.name}: the graph reads weights from {WEIGHTS}, which is missing; export it again")
            begin, length = (_number(place, key, path.name) for key in ("offset", "length"))
            if begin + length > weights:
                message = f"the graph reads {length} bytes of {WEIGHTS} from {begin} on, which has {weights} bytes; export it again"
                raise BadData(f"{path.name}: {message}")


def _number(place: TensorEntries, key: str, name: str) -> int:
    """Returns the largest value of the key; 0 without one."""
    values = place.every(key)
    if odd := [value for value in values if not (value.isascii() and value.isdigit() and len(value) < _DIGITS)]:
        raise BadData(f"{name}: the {key} of weights in {WEIGHTS} is not a number: {odd[0][:40]!r}")
    return max(map(int, values), default=0)


def _places(content: mmap.mmap, at: int, end: int, kind: Kind, depth: int) -> Iterator[TensorEntries]:
    if depth > _DEEPEST:
        raise ValueError("too deep")
    words = []
    for number, begin, stop in _parts(content, at, end):
        inner = PARTS[kind].get(number)
        if inner == "entry":
            words.append(_word(content, begin, stop))
        elif inner is not None:
            yield from _places(content, begin, stop, inner, depth + 1)
    if words:
        yield TensorEntries(tuple(words))


def _word(content: mmap.mmap, at: int, end: int) -> tuple[str, str]:
    fields = {_KEY: "", _VALUE: ""}
    for number, begin, stop in _parts(content, at, end):
        if number in fields:
            fields[number] = content[begin:stop].decode()  # the last value counts, as in any protobuf reader
    return fields[_KEY], fields[_VALUE]


def _parts(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields messages, texts and bytes with their ranges; skips numbers. ValueError or IndexError for bad content."""
    while at < end:
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(content, at)
            if at + length > end:
                raise ValueError("cut short")
            yield tag >> 3, at, at + length
            at += length
        elif kind == _VARINT:
            _, at = _varint(content, at)
        elif kind in (_EIGHT, _FOUR):
            at += 8 if kind == _EIGHT else 4
        else:
            raise ValueError("a kind of field that ONNX does not use")
    if at > end:
        raise ValueError("cut short")


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than eight bytes")
