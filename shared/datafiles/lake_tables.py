"""Delta and Iceberg tables: found by their logs, and the files that they name, each checked against the data roots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from shared.datafiles import local, objects
from shared.datafiles.kinds import MAGIC
from shared.datafiles.object_store import ObjectStore
from shared.datafiles.states import object_state, state
from shared.datafiles.table_logs import HINT, LOGS, DeltaLog, Format, delta_log, iceberg_metadata
from shared.domain.errors import BadData, Invalid, Unsupported
from shared.domain.object_uris import is_object

_SAME_STORE = {"s3a://": "s3://", "s3n://": "s3://"}


@dataclass(frozen=True)
class LogFile:
    state: str
    changed: datetime


@dataclass(frozen=True)
class TableFiles:
    """Files under the data roots that a table names. `scratch`: folder for copies of objects."""

    uri: str
    folder: str
    roots: tuple[str, ...]
    store: ObjectStore
    scratch: Path | None = None
    copies: dict[str, Path] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def path(self, location: str) -> Path:
        """Returns the path of a file, or of its copy. `location`: a path or a URI, absolute or below the table's folder."""
        location = self._absolute(location)
        named = f"{self.uri}: file {location} of the table"
        if not is_object(location):
            if "://" in location:
                raise Unsupported(f"{named}: sources of '{location.partition(':')[0]}' are not yet supported")
            allowed = local.allowed_roots(self.roots)
            local.check_allowed(location, named, allowed)
            path = Path(location)
            if not path.is_file():
                raise BadData(f"{named}: file not found; was it vacuumed or expired?")
            return path
        try:
            objects.allowed_key(location, self.roots)
        except Invalid as error:
            raise Invalid(f"{named}: {str(error).removeprefix(f'{location}: ')}") from None
        assert self.scratch is not None
        with self.lock:
            if location not in self.copies:
                path = self.scratch / f"{len(self.copies):06}" / location.rsplit("/", 1)[-1]
                self.store.fetch(location, path)
                self.copies[location] = path
            return self.copies[location]

    def text(self, location: str) -> str | None:
        """Returns the content of a small file; None if it is missing."""
        location = self._absolute(location)
        if is_object(location):
            entry = self.store.find(location)
            return None if entry is None else b"".join(self.store.pieces(location, entry.tag)).decode(errors="replace")
        return self.path(location).read_text(errors="replace") if Path(location).exists() else None

    def list(self, name: str) -> dict[str, LogFile]:
        """Returns the files of a folder in the table's folder, by name."""
        if is_object(self.folder):
            prefix = f"{self.folder}/{name}/"
            entries = [entry for entry in self.store.list(prefix, most=None) if "/" not in entry.uri.removeprefix(prefix)]
            return {entry.uri.removeprefix(prefix): LogFile(object_state(entry), entry.written) for entry in entries}
        folder = Path(self.folder) / name
        local.check_allowed(str(folder), self.uri, local.allowed_roots(self.roots))
        files = [path for path in folder.iterdir() if path.is_file()]
        return {path.name: LogFile(state(path), datetime.fromtimestamp(path.stat().st_mtime, UTC)) for path in files}

    def _absolute(self, location: str) -> str:
        for prefix, scheme in _SAME_STORE.items():
            if location.startswith(prefix):
                return scheme + location.removeprefix(prefix)
        if location.startswith("file:"):
            return "/" + location.removeprefix("file:").lstrip("/")
        return location if "://" in location or location.startswith("/") else f"{self.folder}/{location}"


@dataclass(frozen=True)
class LakeTable:
    """Table at a version: the newest one, or the one that the spec names."""

    format: Format
    version: int | None
    files: TableFiles
    log: Mapping[str, LogFile]

    @property
    def uri(self) -> str:
        return self.files.uri

    def delta(self) -> DeltaLog:
        return delta_log(self.log.keys(), self.version, self.uri)

    def metadata(self) -> str:
        """Returns the name of an Iceberg table's newest metadata."""
        hint = self.files.text(f"{LOGS['Iceberg']}/{HINT}") if HINT in self.log else None
        return iceberg_metadata(self.log.keys(), None if hint is None else hint.strip(), self.uri)

    def location(self, name: str) -> str:
        """Returns the location of a file of the log."""
        return f"{self.files.folder}/{LOGS[self.format]}/{name}"

    @property
    def _newest(self) -> str:
        """Returns the file that was written last for this version."""
        return self.delta().names[-1] if self.format == "Delta" else self.metadata()

    @property
    def changed(self) -> datetime:
        return self.log[self._newest].changed

    def mark(self) -> dict[str, str]:
        """Returns the state of the version by its name. A snapshot of an Iceberg table never changes."""
        newest = self._newest
        if self.format == "Delta":
            return {f"{self.uri} (Delta version {self.delta().version})": self.log[newest].state}
        if self.version is not None:
            return {f"{self.uri} (Iceberg snapshot {self.version})": "set by the spec"}
        return {f"{self.uri} (Iceberg metadata {newest})": self.log[newest].state}


def lake_table(
    uri: str, roots: Sequence[str], store: ObjectStore, version: int | None = None, scratch: Path | None = None
) -> LakeTable | None:
    """Returns the table in the folder of a uri; None if it is none. Rejects a version of other sources."""
    format: Format | None = None
    if is_object(uri):
        bucket, key = objects.allowed_key(uri, roots)
        folder = f"{bucket}/{key}".rstrip("/")
        format = None if MAGIC & set(key) else objects.table_format(folder, store)
    else:
        pattern, _ = local.allowed_pattern(uri, roots)
        folder = pattern
        format = None if MAGIC & set(pattern) else local.table_format(Path(pattern))
    if format is None:
        if version is not None:
            raise Invalid(f"{uri}: version {version}: only folders of Delta and Iceberg tables have versions; remove it")
        return None
    files = TableFiles(uri, folder, tuple(roots), store, scratch)
    return LakeTable(format, version, files, files.list(LOGS[format]))
