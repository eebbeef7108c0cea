"""Local files under the operator's data roots.

A path is checked after its symlinks are resolved, and before any message says whether it exists. So a spec can neither read nor probe paths
outside the roots.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import unquote, urlsplit

from shared.datafiles.kinds import ENDINGS, MAGIC, kind_of, of_a_folder
from shared.datafiles.table_logs import LOGS, Format, log_format, part_of_table
from shared.domain.errors import BadData, Invalid, Unsupported
from shared.domain.object_uris import is_object


def data_files(uri: str, roots: Sequence[str]) -> list[Path]:
    """Returns the files of a uri, sorted by name; rejects files that are not allowed, missing, or of an unknown kind."""
    pattern, allowed = allowed_pattern(uri, roots)
    if not MAGIC & set(pattern):
        path = Path(pattern)
        if not path.exists() and (near := _near_file(_local(uri), allowed)):
            raise BadData(f"{uri}: file not found; did you mean '{near}'?")
        if path.is_dir():
            return _of_folder(path, uri, allowed)
        file = _check_file(path, uri)
        _check_no_table([file], uri)
        return [file]
    paths = [Path(path) for path in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 (an absolute pattern)
    for path in paths:
        check_allowed(str(path), uri, allowed)
    files = [_check_file(path, uri) for path in paths if not path.is_dir()]
    if not files:
        raise BadData(f"{uri}: no file matches")
    _check_no_table(files, uri)
    return files


def _near_file(path: str, allowed: Sequence[str]) -> str | None:
    """Returns the data file of the same folder, in any root, with the closest name, endings aside."""
    folders = [Path(root) / Path(path).parent for root in allowed]
    inside = [folder for folder in folders if folder.is_dir() and _is_allowed(str(folder), allowed)]
    names = {entry.stem: entry.name for folder in inside for entry in folder.iterdir() if kind_of(entry.name) is not None}
    return next((names[stem] for stem in get_close_matches(Path(path).stem, names, n=1, cutoff=0.6)), None)


def _of_folder(folder: Path, uri: str, allowed: Sequence[str]) -> list[Path]:
    """Returns all data files in the folder and below; ignores other files."""
    paths = sorted(path for path in folder.rglob("*") if of_a_folder(path.relative_to(folder).as_posix()) and path.is_file())
    for path in paths:
        check_allowed(str(path), uri, allowed)
    _check_no_table([*paths, folder / "any"], uri)
    if not paths:
        raise BadData(f"{uri}: the folder has no data files (their names end in {ENDINGS})")
    return [_check_file(path, uri) for path in paths]


def table_format(folder: Path) -> Format | None:
    """Returns the format if the folder is a table whose rows a log defines."""
    for name in LOGS.values():
        if (folder / name).is_dir():
            format = log_format(name, [path.name for path in (folder / name).glob("*.metadata.json")])
            if format is not None:
                return format
    return None


def _check_no_table(files: Sequence[Path], uri: str) -> None:
    """Rejects files of a table: its log, not its folder, says which of them have rows."""
    folders = {folder for path in files for folder in (*path.parents, *Path(os.path.realpath(path)).parents)}
    for folder in sorted(folders):
        if format := table_format(folder):
            raise part_of_table(uri, str(folder), format)


def base_folder(uri: str, roots: Sequence[str]) -> Path:
    """Returns the folder of a uri. Sub-folders of it named `key=value` are partitions."""
    pattern, _ = allowed_pattern(uri, roots)
    if MAGIC & set(pattern):
        return Path(_fixed_part(pattern))
    return Path(pattern) if Path(pattern).is_dir() else Path(pattern).parent


def allowed_pattern(uri: str, roots: Sequence[str]) -> tuple[str, list[str]]:
    allowed = allowed_roots(roots)
    pattern = _placed(_local(uri), allowed)
    if not MAGIC & set(pattern):
        check_allowed(pattern, uri, allowed)
        return pattern, allowed
    if ".." in Path(pattern).parts:
        raise Invalid(f"{uri}: a pattern cannot have '..'")
    check_allowed(_fixed_part(pattern), uri, allowed)
    return pattern, allowed


def allowed_roots(roots: Sequence[str]) -> list[str]:
    return [os.path.realpath(_local(root)) for root in roots if not is_object(root)]


def _placed(path: str, allowed: Sequence[str]) -> str:
    """Resolves a relative path under the first data root that contains it."""
    if Path(path).is_absolute() or not allowed:
        return path
    places = [str(Path(root) / path) for root in allowed]
    if ".." in Path(path).parts:
        return places[0]
    return next((place for place in places if glob.glob(place, recursive=True)), places[0])  # noqa: PTH207 (an absolute pattern)


def _local(uri: str) -> str:
    if not uri:
        raise Invalid("uri: empty; set the path of a file under a data root")
    if "\0" in uri:
        raise Invalid("uri: remove the NUL byte")
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file":
        raise Unsupported(f"{uri}: sources of '{parts.scheme}' are not yet supported: use a path, file://, s3://, gs:// or az://")
    if parts.netloc not in ("", "localhost"):
        raise Invalid(f"{uri}: a file of another machine cannot be read: write file:///path")
    return unquote(uri.split("://", 1)[1].removeprefix("localhost"))


def _fixed_part(pattern: str) -> str:
    """Returns the folder above the first part of a pattern with a wildcard."""
    parts = Path(pattern).parts
    fixed = next(i for i, part in enumerate(parts) if MAGIC & set(part))
    return str(Path(*parts[:fixed])) if fixed else "."


def check_allowed(path: str, uri: str, allowed: Sequence[str]) -> None:
    if not _is_allowed(path, allowed):
        listed = ", ".join(allowed) if allowed else "none are set"
        raise Invalid(f"{uri}: not under an allowed data root ({listed})")


def _is_allowed(path: str, allowed: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in allowed)


def _check_file(path: Path, uri: str) -> Path:
    named = uri if str(path) in uri else str(path)
    if not path.exists():
        raise BadData(f"{named}: file not found")
    if not path.is_file():
        raise BadData(f"{named}: not a plain file")
    if kind_of(path.name) is None:
        raise Unsupported(f"{named}: not a data file: only names ending in {ENDINGS} are read")
    if path.stat().st_size == 0:
        raise BadData(f"{named}: the file is empty")
    return path
