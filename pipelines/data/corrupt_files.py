"""Separates unreadable files from readable ones; reports each fault and moves no file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from shared.contracts.validation_report import FaultyFile
from shared.domain.errors import BadData


def sound_files(files: Sequence[Path], look: Callable[[Path], None]) -> tuple[list[Path], list[FaultyFile]]:
    """Returns the files that `look` accepts, and the faulty ones. Raises BadData if all are faulty."""
    sound, faulty, first = [], [], None
    for path in files:
        try:
            look(path)
            sound.append(path)
        except BadData as error:
            first = first or error
            faulty.append(_described(path, str(error).removeprefix(f"{path}: ")))
    if first is not None and not sound:
        raise first
    return sound, faulty


def _described(path: Path, fault: str) -> FaultyFile:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return FaultyFile(name=path.name, size=path.stat().st_size, sha256=digest, fault=fault)
