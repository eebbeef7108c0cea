"""Names of the files by which Delta and Iceberg tables record their versions. Pure: decides on names, reads nothing."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from shared.domain.errors import BadData

Format = Literal["Delta", "Iceberg"]
LOGS: dict[Format, str] = {"Delta": "_delta_log", "Iceberg": "metadata"}
"""Folder of a table's log, by format."""
HINT = "version-hint.text"
_ICEBERG = ".metadata.json"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_METADATA = re.compile(r"v?(\d+)(?:[-.].*)?\.metadata\.json")


def log_format(folder: str, names: Collection[str]) -> Format | None:
    """Returns the format of a table whose folder `folder` has files of these names."""
    if folder == LOGS["Delta"]:
        return "Delta"
    return "Iceberg" if folder == LOGS["Iceberg"] and any(name.endswith(_ICEBERG) for name in names) else None


def table_above(key: str) -> tuple[str, Format] | None:
    """Returns the folder and the format of the table if `key` is a file of its log."""
    parts = key.split("/")
    if LOGS["Delta"] in parts[:-1]:
        return "/".join(parts[: parts.index(LOGS["Delta"])]), "Delta"
    if len(parts) > 1 and log_format(parts[-2], parts[-1:]):
        return "/".join(parts[:-2]), "Iceberg"
    return None


def part_of_table(uri: str, folder: str, format: Format) -> BadData:
    """Returns the refusal of single files of a table: its log says which of them have rows."""
    article = "an" if format == "Iceberg" else "a"
    return BadData(f"{uri}: {folder} is {article} {format} table, and its log says which files have rows; set uri to that folder")


@dataclass(frozen=True)
class DeltaLog:
    """Part of a Delta log that defines one version: a checkpoint and the commits after it."""

    version: int
    names: tuple[str, ...]

    @property
    def newest(self) -> str:
        return self.names[-1]


def delta_log(names: Collection[str], version: int | None, uri: str) -> DeltaLog:
    """Chooses the files of `version`, or of the newest one. Checkpoints named by a UUID are ignored: the files that they name may lie
    anywhere."""
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    checkpoints = _checkpoints(names)
    newest = max((*commits, *checkpoints), default=None)
    if newest is None:
        raise BadData(f"{uri}: the log of the Delta table has no version")
    chosen = newest if version is None else version
    if chosen > newest:
        raise BadData(f"{uri}: version {chosen} is missing; the newest version of the Delta table is {newest}")
    start = max((number for number in checkpoints if number <= chosen), default=-1)
    missing = next((number for number in range(start + 1, chosen + 1) if number not in commits), None)
    if missing is not None:
        raise BadData(f"{uri}: version {chosen} cannot be read: the Delta log lacks version {missing} and a Parquet checkpoint after it")
    checkpoint = [*checkpoints.get(start, ()), *([commits[start]] if start in commits else [])]
    return DeltaLog(chosen, (*checkpoint, *(commits[number] for number in range(start + 1, chosen + 1))))


def _checkpoints(names: Collection[str]) -> dict[int, list[str]]:
    """Returns the files of each complete checkpoint, by version."""
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(names):
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    return {version: files for (version, count), files in parts.items() if len(files) == count}


def iceberg_metadata(names: Collection[str], hint: str | None, uri: str) -> str:
    """Returns the file of the newest metadata: the one that the hint names or a later one in its sequence, else that with the highest
    number."""
    numbers = {name: int(match[1]) for name in names if (match := _METADATA.fullmatch(name))}
    if hint is not None:
        hinted = next((name for name in (hint, f"v{hint}{_ICEBERG}", f"v{hint}.gz{_ICEBERG}", f"{hint}{_ICEBERG}") if name in names), None)
        if hinted is None:
            raise BadData(f"{uri}: {HINT} names the metadata {hint!r}, which is missing")
        while following := next((name for name in numbers if hint.isdecimal() and _follows(name, hinted)), None):
            hinted = following
        return hinted
    newest = [name for name, number in numbers.items() if number == max(numbers.values())]
    if len(newest) != 1:
        many = f"{len(newest)} files have the number {numbers[newest[0]]}" if newest else "no file has a number"
        raise BadData(f"{uri}: the newest metadata of the Iceberg table is unclear: {many}; write the right file's name to {HINT}")
    return newest[0]


def _follows(name: str, before: str) -> bool:
    """Returns whether both names are of the kind vN.metadata.json, and are neighbours."""
    pattern = re.compile(r"v(\d+)(?:\.gz)?\.metadata\.json")
    first, second = pattern.fullmatch(before), pattern.fullmatch(name)
    return first is not None and second is not None and int(second[1]) == int(first[1]) + 1
