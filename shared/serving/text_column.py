"""Column of texts in one block of UTF-8 bytes, which needs two objects for any number of texts."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shared.domain.errors import Damaged


@dataclass(frozen=True, eq=False)
class TextColumn:
    content: bytes
    ends: np.ndarray[Any, np.dtype[np.int64]]
    """End offset of each text in `content`. A text starts at the end offset of the text before it."""

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, row: int) -> str:
        begin = int(self.ends[row - 1]) if row else 0
        return self.content[begin : int(self.ends[row])].decode()


def text_arrays(texts: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of the column's file."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    return {"content": np.frombuffer(b"".join(encoded), np.uint8), "ends": ends}


def read_texts(content: bytes, place: str) -> TextColumn:
    """Reads the column's file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        column = TextColumn(arrays["content"].tobytes(), arrays["ends"].astype(np.int64))
    ends = column.ends
    if ends.ndim != 1 or (len(ends) and (ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] != len(column.content))):
        raise Damaged(f"{place}: the ends of the texts do not fit the content")
    return column
