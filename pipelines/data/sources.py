"""Where data may come from: Parquet or CSV under the operator's roots, and nowhere else.

A path is judged after its symlinks are resolved, and before anything is said about whether it exists, so a spec can
neither read nor probe what the operator did not allow. Every fault names the file, and the column where there is one.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import polars as pl
from polars.exceptions import PolarsError

from shared.domain.errors import BadData, Invalid, Unsupported

_MAGIC = frozenset("*?[")
_PARQUET, _CSV = (".parquet", ".pq"), (".csv",)


@dataclass(frozen=True)
class Source:
    """Files of one kind and one schema, opened lazily."""

    uri: str
    files: tuple[Path, ...]
    frame: pl.LazyFrame

    @property
    def name(self) -> str:
        return self.files[0].name if len(self.files) == 1 else self.uri

    def digest(self) -> str:
        """sha256 over the files' own digests, in the order of their names."""
        whole = hashlib.sha256()
        for path in self.files:
            with path.open("rb") as stream:
                whole.update(hashlib.file_digest(stream, "sha256").digest())
        return whole.hexdigest()


def open_source(uri: str, roots: Sequence[str], columns: Sequence[str]) -> Source:
    """Opens `uri` after checking that it is allowed, there, readable and has `columns`."""
    files = _files(uri, roots)
    for path in files:
        _check_columns(path, columns)
    scan = _scan(files)
    with readable(uri):
        if scan.head(1).collect().is_empty():
            raise BadData(f"{uri}: it has a header but no rows")
    return Source(uri, tuple(files), scan)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """What polars can't read becomes one line that names the file."""
    try:
        yield
    except (PolarsError, PermissionError) as error:
        raise BadData(f"{name}: it can't be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What polars says, without its advice on how to call polars."""
    said = str(error)
    if "truncate_ragged_lines" in said:
        return "it has rows of different lengths: each line needs as many fields as the header"
    return " ".join(said.split("\n\n", maxsplit=1)[0].split())[:200]


def _files(uri: str, roots: Sequence[str]) -> list[Path]:
    allowed = [os.path.realpath(_local(root)) for root in roots]
    pattern = _placed(_local(uri), allowed)
    if not _MAGIC & set(pattern):
        _check_allowed(pattern, uri, allowed)
        return [_check_file(Path(pattern), uri)]
    if ".." in Path(pattern).parts:
        raise Invalid(f"{uri}: a pattern can't have '..'")
    _check_allowed(_fixed_part(pattern), uri, allowed)
    found = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 (an absolute pattern)
    for path in found:
        _check_allowed(str(path), uri, allowed)
    files = [_check_file(path, uri) for path in found if not path.is_dir()]
    if not files:
        raise BadData(f"{uri}: no file matches")
    return files


def _placed(path: str, allowed: Sequence[str]) -> str:
    """A relative path lies under the first data root that has it."""
    if Path(path).is_absolute() or not allowed:
        return path
    places = [str(Path(root) / path) for root in allowed]
    if ".." in Path(path).parts:
        return places[0]
    return next((place for place in places if glob.glob(place, recursive=True)), places[0])  # noqa: PTH207 (an absolute pattern)


def _local(uri: str) -> str:
    if not uri:
        raise Invalid("uri: it is empty: give the path of a file under a data root")
    if "\0" in uri:
        raise Invalid("uri: it has a null byte")
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file":
        raise Unsupported(f"{uri}: sources of '{parts.scheme}' are not yet supported: give a path or file://")
    if parts.netloc not in ("", "localhost"):
        raise Invalid(f"{uri}: a file of another machine can't be read: write file:///path")
    return unquote(uri.split("://", 1)[1].removeprefix("localhost"))


def _fixed_part(pattern: str) -> str:
    """The folder above the first part of a glob that has a wildcard."""
    parts = Path(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if _MAGIC & set(part))
    return str(Path(*parts[:fixed])) if fixed else "."


def _check_allowed(path: str, uri: str, allowed: Sequence[str]) -> None:
    real = os.path.realpath(path)
    if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in allowed):
        listed = ", ".join(allowed) if allowed else "none are set"
        raise Invalid(f"{uri}: it doesn't lie under an allowed data root ({listed})")


def _check_file(path: Path, uri: str) -> Path:
    named = uri if str(path) in uri else str(path)
    if path.is_dir():
        raise BadData(f"{named}: it is a folder: name its files, such as {named.rstrip('/')}/*.parquet")
    if not path.exists():
        raise BadData(f"{named}: there is no such file")
    if not path.is_file():
        raise BadData(f"{named}: it is not a plain file")
    if path.suffix.lower() not in _PARQUET + _CSV:
        raise Unsupported(f"{named}: only files ending in .parquet or .csv are read")
    if path.stat().st_size == 0:
        raise BadData(f"{named}: the file is empty")
    return path


def _scan(files: Sequence[Path]) -> pl.LazyFrame:
    suffixes = {"csv" if path.suffix.lower() in _CSV else "parquet" for path in files}
    if len(suffixes) > 1:
        raise BadData(f"{files[0].parent}: Parquet and CSV files can't be read together")
    if suffixes == {"csv"}:
        return pl.scan_csv(list(files), infer_schema_length=10_000, glob=False)
    return pl.scan_parquet(list(files), glob=False)


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    with readable(str(path)):
        names = _scan([path]).collect_schema().names()
    for column in columns:
        if column not in names:
            raise BadData(f"{path}: column '{column}' is missing; it has: {', '.join(names[:20])}")
