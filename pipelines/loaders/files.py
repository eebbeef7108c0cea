"""Finds the files of a loader: paths, patterns, folders and objects, in a fixed order, with their present size and time."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.loaders.file_protocol import File, Ranges, is_parquet
from pipelines.loaders.remote import in_a_bucket, in_a_filesystem
from shared.datafiles.kinds import MAGIC
from shared.domain.errors import BadData, Invalid
from shared.domain.object_uris import is_object

Paths = str | Path | Sequence[str | Path]


def find_files(paths: Paths, filesystem: Any = None) -> tuple[File, ...]:
    """Finds files of a path, a pattern (`*`, `?`, `[...]`; `**` for any depth), a folder, a list, or the same in s3://, gs:// and az://.

    The files of a pattern or a folder are sorted by path as text: 10.parquet before 2.parquet. A folder gives files at any depth that end
    in .parquet or .pq, except names with '.' or '_' at the start and files in such folders. A list keeps its order. `filesystem` is of
    fsspec or pyarrow, for all paths; without it objects are read as everywhere in Eyas (AWS_ENDPOINT_URL, ...).
    """
    files: dict[str, File] = {}
    locations = [paths] if isinstance(paths, str | Path) else list(paths)
    if not locations:
        raise Invalid("paths: empty; name a Parquet file, a folder or a pattern such as rows/*.parquet")
    for location in locations:
        for file in _of(str(location), filesystem):
            if file.name in files:
                raise Invalid(f"{file.name}: named twice; its rows would appear twice in an epoch")
            files[file.name] = file
    return tuple(files.values())


def _of(path: str, filesystem: Any) -> Iterator[File]:
    if not path:
        raise Invalid("paths: one path is empty; name a Parquet file, a folder or a pattern such as rows/*.parquet")
    if filesystem is not None:
        return in_a_filesystem(path, filesystem)
    if is_object(path):
        return in_a_bucket(path)
    if "://" in path and not path.startswith("file://"):
        raise Invalid(f"{path}: pass `filesystem` for paths that are neither local nor s3://, gs:// or az://")
    return _local(path.removeprefix("file://"))


def _local(path: str) -> Iterator[File]:
    place = Path(path).expanduser()
    if place.is_dir():
        paths = sorted(file for file in place.rglob("*") if is_parquet(file.relative_to(place).as_posix()) and file.is_file())
        if not paths:
            raise BadData(f"{path}: folder without Parquet files (names end in .parquet or .pq)")
    elif place.exists() or not MAGIC & set(path):
        paths = [place]
    else:
        paths = sorted(Path(name) for name in glob.glob(str(place), recursive=True) if not Path(name).is_dir())  # noqa: PTH207 (may be absolute)
        if not paths:
            raise BadData(f"{path}: no file matches")
    return (LocalFile.at(file) for file in paths)


@dataclass(frozen=True)
class LocalFile:
    """A local file; not memory-mapped, because truncation during reading would end the process."""

    path: Path
    size: int
    stamp: str

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        try:
            state = path.stat()
        except FileNotFoundError:
            raise BadData(f"{path}: file not found") from None
        except OSError as error:
            raise BadData(f"{path}: cannot be read: {error.strerror}") from error
        if not path.is_file():
            raise BadData(f"{path}: not a plain file")
        return cls(path.resolve(), state.st_size, str(state.st_mtime_ns))

    @property
    def name(self) -> str:
        return str(self.path)

    def open(self, ranges: Ranges) -> pa.NativeFile:
        return pa.OSFile(os.fspath(self.path))

    def buffer_size(self, ranges: Ranges) -> int:
        return 0

    def check(self) -> None:
        if LocalFile.at(self.path) != self:
            raise BadData(f"{self.path}: changed while it was read; start again when it is complete")
