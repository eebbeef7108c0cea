"""What a loader needs of a file, and which files of a folder it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from shared.datafiles.kinds import kind_of, of_a_folder

Ranges = Sequence[tuple[int, int]]
"""Of bytes: where each begins, and where it ends."""


class File(Protocol):
    @property
    def name(self) -> str:
        """As the user knows it."""

    @property
    def size(self) -> int: ...

    @property
    def stamp(self) -> str:
        """Another one once it is written anew."""

    def open(self, ranges: Ranges) -> pa.NativeFile:
        """To read these bytes, or others."""

    def buffer_size(self, ranges: Ranges) -> int:
        """Bytes in memory while it is open to read these."""

    def check(self) -> None:
        """Refuses what isn't as it was found."""


def is_parquet(name: str) -> bool:
    """Whether it counts among the files of a folder, where it is named so."""
    return of_a_folder(name) and kind_of(name) == "parquet"
