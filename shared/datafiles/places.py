"""Data sources of a spec in the control plane: allowed, existing, changed. Reads no rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shared.contracts.sources import Contents, Place
from shared.datafiles.auxiliary_files import images_folder, images_in, images_objects, single_file, single_object
from shared.datafiles.databases import databases
from shared.datafiles.delimited import recognise
from shared.datafiles.kinds import LAYOUT, kind_of
from shared.datafiles.local import allowed_pattern, data_files
from shared.datafiles.object_store import DataObject, ObjectStore
from shared.datafiles.objects import allowed_key, data_objects, layout
from shared.domain.errors import BadData, EyasError, Invalid
from shared.domain.object_uris import is_object
from shared.domain.stage_reuse import part

_NAMED = 50
_HEADER = 65_536
"""Bytes that are read of a file for its header."""
_PATIENCE = 5.0
"""Seconds to wait for an object store, because its callers block."""


def _hasty() -> ObjectStore:
    return ObjectStore(timeout=_PATIENCE, tries=1)


class DataFiles:
    """Implements the DataSource port: fingerprints of files under the operator's roots, without reading them; also reads small files."""

    def __init__(self, roots: Sequence[str], store: Callable[[], ObjectStore] = _hasty) -> None:
        self._roots = tuple(roots)
        self._store = store

    def fingerprint(self, uri: str, contents: Contents = "rows") -> Mapping[str, str]:
        """Returns, by file, its size and modification time, and an object's tag; one combined entry for many files. Empty if the files
        cannot be read: the stage reports the reason."""
        try:
            marks = self._marks(uri, contents)
        except (EyasError, OSError):
            return {}
        return marks if len(marks) <= _NAMED else {f"{uri} ({len(marks)} files)": part(marks)}

    def check(self, place: Place) -> None:
        """Rejects a place that no stage could read: an unknown scheme, or a path outside the roots."""
        if place.uri is None:
            return
        if is_object(place.uri):
            allowed_key(place.uri, self._roots)
        else:
            allowed_pattern(place.uri, self._roots)

    def read(self, uri: str, most: int) -> bytes:
        """Returns the content of one file under the roots; rejects a file of more than `most` bytes."""
        if not is_object(uri):
            path = single_file(uri, self._roots, "file")
            try:
                with path.open("rb") as file:
                    content = file.read(most + 1)
            except OSError as error:
                raise BadData(f"{uri}: cannot be read: {error.strerror}") from None
            _check_size(uri, len(content), most)
            return content
        store = self._store()
        item = single_object(uri, self._roots, store, "file")
        _check_size(uri, item.size, most)
        buffer = bytearray(item.size)
        if item.size:
            store.read(uri, item.tag, 0, memoryview(buffer))
        return bytes(buffer)

    def header(self, place: Place) -> tuple[str, ...] | None:
        """Returns the columns of a CSV or TSV table under their names in the spec; None if they cannot be read cheaply."""
        try:
            name, content = self._beginning(place.uri) if place.uri is not None else ("", b"")
            if kind_of(name) not in ("csv", "tsv") or b"\n" not in content:
                return None
            columns = recognise(content, name, place.csv).columns
        except (EyasError, OSError):
            return None
        names = {column: wanted for wanted, column in place.names.items()}
        return tuple(names.get(column, column) for column in columns)

    def changed_at(self, place: Place) -> datetime | None:
        """Returns when the newest file of the place was changed; None for a query, or if the files cannot be found."""
        try:
            if place.uri is None:
                return None
            if is_object(place.uri):
                return max(entry.written for entry in data_objects(place.uri, self._roots, self._store()))
            newest = max(path.stat().st_mtime for path in data_files(place.uri, self._roots))
        except (EyasError, OSError):
            return None
        return datetime.fromtimestamp(newest, UTC)

    def _beginning(self, uri: str) -> tuple[str, bytes]:
        """Returns the first file's name and its first bytes."""
        if is_object(uri):
            store = self._store()
            item = data_objects(uri, self._roots, store)[0]
            return item.key, bytes(store.part(item.uri, item.tag, 0, min(item.size, _HEADER)))
        path = data_files(uri, self._roots)[0]
        with path.open("rb") as file:
            return path.name, file.read(_HEADER)

    def fault(self, place: Place) -> str | None:
        """Returns why the place cannot be read now by this process; else None."""
        try:
            if place.uri is not None:
                self._marks(place.uri, place.contents)
            elif place.database is not None:
                databases().url(place.database)
        except (EyasError, OSError) as error:
            return str(error)
        return None

    def _marks(self, uri: str, contents: Contents) -> dict[str, str]:
        if contents != "rows":
            return self._beside(uri, contents)
        if is_object(uri):
            store = self._store()
            objects = data_objects(uri, self._roots, store)
            marks = {data_object.uri: _tagged(data_object) for data_object in objects}
            return marks | {other.uri: f"tag {other.tag}" for data_object in objects for other in layout(data_object, store)}
        files = data_files(uri, self._roots)
        beside = [path.with_name(path.name + LAYOUT) for path in files if kind_of(path.name) == "tfrecord"]
        return {str(path): _state(path) for path in (*files, *(path for path in beside if path.is_file()))}

    def _beside(self, uri: str, contents: Contents) -> dict[str, str]:
        if is_object(uri):
            store = self._store()
            if contents == "encoder":
                return {uri: _tagged(single_object(uri, self._roots, store))}
            return {data_object.uri: _tagged(data_object) for data_object in images_objects(uri, self._roots, store).values()}
        if contents == "encoder":
            path = single_file(uri, self._roots)
            return {str(path): _state(path)}
        return {str(path): _state(path) for path in images_in(images_folder(uri, self._roots))}


def _check_size(uri: str, size: int, most: int) -> None:
    if size > most:
        raise Invalid(f"{uri}: larger than {most} bytes, the maximum")


def _tagged(data_object: DataObject) -> str:
    written = data_object.written.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{data_object.size} bytes of {written}Z, tag {data_object.tag}"


def _state(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} bytes of {_moment(stat.st_mtime_ns)}, changed {_moment(stat.st_ctime_ns)}"


def _moment(nanoseconds: int) -> str:
    """All digits, because they distinguish states of a file."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
