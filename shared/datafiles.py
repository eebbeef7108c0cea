"""Which files a spec's uri means: Parquet or CSV under the operator's data roots, and nowhere else.

A path is judged after its symlinks are resolved, and before anything is said about whether it exists, so a spec can
neither read nor probe what the operator did not allow. What stages read and what reuse compares are the same files by the same rules.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.domain.errors import BadData, EyasError, Invalid, Unsupported
from shared.domain.reuse import part

PARQUET, CSV = (".parquet", ".pq"), (".csv",)
_MAGIC = frozenset("*?[")
_NAMED = 50


class DataFiles:
    """Implements the DataSource port: fingerprints of files under the operator's roots, without reading them."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)

    def fingerprint(self, uri: str) -> Mapping[str, str]:
        """By file: its size and when it was last written; the whole in one where there are very many. Nothing where it can't be read: the
        stage will say why."""
        try:
            found = {str(path): path.stat() for path in data_files(uri, self._roots)}
        except (EyasError, OSError):
            return {}
        marks = {
            name: f"{one.st_size} bytes of {_written(one.st_mtime_ns)}, changed {_written(one.st_ctime_ns)}" for name, one in found.items()
        }
        return marks if len(marks) <= _NAMED else {f"{uri} ({len(marks)} files)": part(marks)}

    def check(self, uri: str) -> None:
        """Refuses what no stage would read wherever the files are: another scheme, or a place outside the roots."""
        _allowed_pattern(uri, self._roots)

    def fault(self, uri: str) -> str | None:
        """Why there would be nothing to read behind a uri just now, as this process sees the files."""
        try:
            data_files(uri, self._roots)
        except (EyasError, OSError) as error:
            return str(error)
        return None


def _written(nanoseconds: int) -> str:
    """To the last digit, since it tells one state of a file from another."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def data_files(uri: str, roots: Sequence[str]) -> list[Path]:
    """The files that a uri of a spec means, in the order of their names; refuses what is not allowed, not there, or of no known kind."""
    pattern, allowed = _allowed_pattern(uri, roots)
    if not _MAGIC & set(pattern):
        return [_check_file(Path(pattern), uri)]
    found = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 (an absolute pattern)
    for path in found:
        _check_allowed(str(path), uri, allowed)
    files = [_check_file(path, uri) for path in found if not path.is_dir()]
    if not files:
        raise BadData(f"{uri}: no file matches")
    return files


def _allowed_pattern(uri: str, roots: Sequence[str]) -> tuple[str, list[str]]:
    allowed = [os.path.realpath(_local(root)) for root in roots]
    pattern = _placed(_local(uri), allowed)
    if not _MAGIC & set(pattern):
        _check_allowed(pattern, uri, allowed)
        return pattern, allowed
    if ".." in Path(pattern).parts:
        raise Invalid(f"{uri}: a pattern can't have '..'")
    _check_allowed(_fixed_part(pattern), uri, allowed)
    return pattern, allowed


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
    if path.suffix.lower() not in PARQUET + CSV:
        raise Unsupported(f"{named}: only files ending in .parquet or .csv are read")
    if path.stat().st_size == 0:
        raise BadData(f"{named}: the file is empty")
    return path
