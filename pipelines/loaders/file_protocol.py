"""Interface of a loader's file, and the rule for files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from shared.datafiles.kinds import kind_of, of_a_folder

Ranges = Sequence[tuple[int, int]]
"""Begin and end of each range of bytes."""


class File(Protocol):
    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def size(self) -> int: ...

    @property
    def stamp(self) -> str:
        """Changes when the file is written again."""

    def open(self, ranges: Ranges) -> pa.NativeFile:
        """Opens the file to read these bytes; others can be read as well."""

    def buffer_size(self, ranges: Ranges) -> int:
        """Bytes in memory while the file is open for these ranges."""

    def check(self) -> None:
        """Raises an error if the file has changed since it was found."""


def is_parquet(name: str) -> bool:
    """Returns whether a file with this name counts as Parquet in a folder."""
    return of_a_folder(name) and kind_of(name) == "parquet"
