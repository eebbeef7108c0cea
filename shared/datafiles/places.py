"""Data sources of a spec in the control plane: allowed, existing, changed. Reads no rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from shared.contracts.sources import Contents, Place
from shared.datafiles.auxiliary_files import images_folder, images_in, images_objects, single_file, single_object
from shared.datafiles.databases import databases
from shared.datafiles.delimited import recognise
from shared.datafiles.kinds import LAYOUT, kind_of
from shared.datafiles.lake_tables import lake_table
from shared.datafiles.local import allowed_pattern, base_folder, data_files
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.objects import allowed_key, base_key, data_objects, layout
from shared.datafiles.partitions import partition_values
from shared.datafiles.states import object_state, state
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

    def fingerprint(self, uri: str, contents: Contents = "rows", version: int | None = None) -> Mapping[str, str]:
        """Returns, by file, its size and modification time, and an object's tag; one combined entry for many files, and one for the version
        of a table. Empty if the files cannot be read: the stage reports the reason."""
        try:
            marks = self._marks(uri, contents, version)
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
            name, content, partitions = self._beginning(place.uri) if place.uri is not None else ("", b"", ())
            if kind_of(name) not in ("csv", "tsv") or b"\n" not in content:
                return None
            columns = recognise(content, name, place.csv).columns
        except (EyasError, OSError):
            return None
        names = {column: wanted for wanted, column in place.names.items()}
        return tuple(names.get(column, column) for column in dict.fromkeys((*columns, *partitions)))

    def changed_at(self, place: Place) -> datetime | None:
        """Returns when the newest file of the place was changed; None for a query, or if the files cannot be found."""
        try:
            if place.uri is None:
                return None
            table = lake_table(place.uri, self._roots, self._store(), place.version)
            if table is not None:
                return table.changed
            if is_object(place.uri):
                return max(entry.written for entry in data_objects(place.uri, self._roots, self._store()))
            newest = max(path.stat().st_mtime for path in data_files(place.uri, self._roots))
        except (EyasError, OSError):
            return None
        return datetime.fromtimestamp(newest, UTC)

    def _beginning(self, uri: str) -> tuple[str, bytes, Iterable[str]]:
        """Returns the first file's name, its first bytes, and the columns of its partitions."""
        if is_object(uri):
            store = self._store()
            item = data_objects(uri, self._roots, store)[0]
            content = bytes(store.part(item.uri, item.tag, 0, min(item.size, _HEADER)))
            return item.key, content, partition_values(Path(item.key), Path(base_key(uri)))
        path = data_files(uri, self._roots)[0]
        with path.open("rb") as file:
            return path.name, file.read(_HEADER), partition_values(path, base_folder(uri, self._roots))

    def fault(self, place: Place) -> str | None:
        """Returns why the place cannot be read now by this process; else None."""
        try:
            if place.uri is not None:
                self._marks(place.uri, place.contents, place.version)
            elif place.database is not None:
                databases().url(place.database)
        except (EyasError, OSError) as error:
            return str(error)
        return None

    def _marks(self, uri: str, contents: Contents, version: int | None) -> dict[str, str]:
        if contents != "rows":
            return self._beside(uri, contents)
        table = lake_table(uri, self._roots, self._store(), version)
        if table is not None:
            return table.mark()
        if is_object(uri):
            store = self._store()
            objects = data_objects(uri, self._roots, store)
            marks = {data_object.uri: object_state(data_object) for data_object in objects}
            return marks | {other.uri: f"tag {other.tag}" for data_object in objects for other in layout(data_object, store)}
        files = data_files(uri, self._roots)
        beside = [path.with_name(path.name + LAYOUT) for path in files if kind_of(path.name) == "tfrecord"]
        return {str(path): state(path) for path in (*files, *(path for path in beside if path.is_file()))}

    def _beside(self, uri: str, contents: Contents) -> dict[str, str]:
        if is_object(uri):
            store = self._store()
            if contents == "encoder":
                return {uri: object_state(single_object(uri, self._roots, store))}
            return {data_object.uri: object_state(data_object) for data_object in images_objects(uri, self._roots, store).values()}
        if contents == "encoder":
            path = single_file(uri, self._roots)
            return {str(path): state(path)}
        return {str(path): state(path) for path in images_in(images_folder(uri, self._roots))}


def _check_size(uri: str, size: int, most: int) -> None:
    if size > most:
        raise Invalid(f"{uri}: larger than {most} bytes, the maximum")
