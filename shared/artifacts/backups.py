"""Backups in a folder or a bucket: content by its digest, shared by all backups, and one document for each backup.

    blobs/ab/abcd...                    dumps of the database, artifacts, manifests and logs
    backups/20261127T101500Z.json       written last: a backup is complete or absent

Artifacts are copied before and after the dump of the database. What the dump names existed before it, or was published during it; so the
garbage collector would have to erase a file within seconds of its publication to make a backup incomplete, and it waits much longer.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.artifacts.objects import opened
from shared.artifacts.store import FsspecArtifacts
from shared.artifacts.writing import write_whole, written_at
from shared.contracts.backup import NAME, Backup, DatabaseDump, DatabaseKind, name_of
from shared.contracts.stage import File, Manifest
from shared.contracts.strict import read
from shared.domain.errors import Conflict, Damaged, Invalid, NotFound

Dump = Callable[[Path], tuple[DatabaseKind, str]]
"""Writes a dump to a path; returns the database's kind and its revision."""
Tell = Callable[[str], None]
_SHELVES = ("manifests", "logs")
_UNNAMED_FOR = timedelta(days=1)
"""Age below which content that no backup names stays: a backup that runs now may need it."""


class BackupStore:
    def __init__(self, url: str, tell: Tell = lambda _: None) -> None:
        self.url = url
        self._tell = tell
        self._fs, self._root = opened(url)
        self._contents = FsspecArtifacts(url)
        self.copied_bytes = 0
        """Bytes that this object has copied; content that was there is not copied again."""

    def names(self) -> Sequence[str]:
        """Returns the names of the complete backups, the oldest first."""
        self._fs.invalidate_cache()
        names = (path.rsplit("/", 1)[1].removesuffix(".json") for path in self._fs.find(f"{self._root}/backups"))
        return sorted(name for name in names if re.fullmatch(NAME, name))

    def open(self, name: str | None = None) -> Backup:
        """Returns a backup; the newest without a name."""
        names = self.names()
        if not names:
            raise NotFound(f"{self.url}: no backup found; name the folder or bucket that `eyas backup` wrote to")
        if name is not None and name not in names:
            raise NotFound(f"{self.url}: no backup '{name}'; the newest are {', '.join(names[-3:])}")
        path = self._document(name or names[-1])
        try:
            document = json.loads(self._fs.cat_file(path))
        except ValueError:
            raise Damaged(f"{path}: the backup's document is damaged; choose another backup") from None
        if isinstance(document, dict) and document.get("version") != 1:
            raise Invalid(f"{path}: a newer release wrote this backup; restore it with that release")
        return read(Backup, document, path)

    def take(self, artifacts: str, dump: Dump, version_files: Callable[[], Iterable[File]]) -> Backup:
        """Makes a backup. `version_files`: files of the registered versions, read after the dump."""
        source = _Source(artifacts)
        files: dict[str, File] = {}
        blobs: dict[str, File] = {}
        missing: dict[str, None] = {}
        self._copy(source, files, blobs, missing)
        while self._fs.exists(self._document(name_of(at := datetime.now(UTC).replace(microsecond=0)))):
            time.sleep(0.1)  # a name is a second
        self._tell("database: writing the dump")
        with TemporaryDirectory(prefix="eyas-backup-") as folder:
            path = Path(folder) / "dump"
            kind, revision = dump(path)
            database = DatabaseDump(kind=kind, revision=revision, file=self._contents.put(path))
            self.copied_bytes += database.file.size
        self._copy(source, files, blobs, missing)
        missing |= dict.fromkeys(self._copy_blobs(source, version_files(), blobs))
        backup = Backup(at=at, database=database, files=files, blobs=tuple(blobs.values()), missing=tuple(missing))
        self._check_complete(backup)
        write_whole(self._fs, backup.model_dump_json(indent=1).encode(), self._document(backup.name))
        return backup

    def restore(self, backup: Backup, artifacts: str, load: Callable[[Path], None] | None) -> None:
        """Copies the artifacts that are missing, then calls `load` with the dump, if given. Each file is compared with its digest. Can be
        repeated after an interruption."""
        target, store = _Source(artifacts), FsspecArtifacts(artifacts)
        self._check_same_manifests(backup, target)
        with TemporaryDirectory(prefix="eyas-restore-") as folder:
            dump = self._contents.fetch(backup.database.file, Path(folder) / "dump") if load is not None else None
            for number, file in enumerate(backup.blobs, 1):
                if not store.holds(file):
                    path = self._contents.fetch(file, Path(folder) / "blob")
                    store.put(path)
                    path.unlink()
                    self.copied_bytes += file.size
                self._tell(f"artifacts: {number:,} of {len(backup.blobs):,} restored")
            for path_in_store, file in backup.files.items():
                if not target.has(path_in_store):
                    target.write(path_in_store, self._contents.read(file))
            if load is not None and dump is not None:
                self._tell("database: loading the dump")
                load(dump)

    def prune(self, keep: int, now: datetime) -> Sequence[str]:
        """Deletes all but the newest `keep` backups, and the content that no other backup names; returns the deleted names."""
        names = self.names()
        gone, left = names[: max(0, len(names) - keep)], names[max(0, len(names) - keep) :]
        named = {digest for name in left for digest in self.open(name).contents()}
        for name in gone:
            self._fs.rm_file(self._document(name))
        for path, info in self._fs.find(f"{self._root}/blobs", detail=True).items():
            if path.rsplit("/", 1)[1] not in named and now - written_at(self._fs, path, info) > _UNNAMED_FOR:
                self._fs.rm_file(path)
        return gone

    def _document(self, name: str) -> str:
        return f"{self._root}/backups/{name}.json"

    def _copy(self, source: _Source, files: dict[str, File], blobs: dict[str, File], missing: dict[str, None]) -> None:
        """Copies what is published and not yet in `files` and `blobs`, and adds it to them."""
        paths = [path for path in source.paths() if path not in files]
        for number, path in enumerate(paths, 1):
            self._tell(f"artifacts: {number:,} of {len(paths):,} attempts copied")
            content = source.read(path)
            if content is None:  # collected meanwhile
                continue
            if path.startswith("manifests/"):
                manifest = read(Manifest, json.loads(content), path)
                lost = self._copy_blobs(source, manifest.files.values(), blobs)
                if lost and not source.has(path):
                    continue
                missing |= dict.fromkeys(lost)
            files[path] = self._put(content)

    def _copy_blobs(self, source: _Source, wanted: Iterable[File], blobs: dict[str, File]) -> list[str]:
        """Returns the digests of content that is missing or damaged."""
        lost: list[str] = []
        with TemporaryDirectory(prefix="eyas-backup-") as folder:
            for file in wanted:
                if file.sha256 not in blobs and not self._contents.holds(file):
                    try:
                        path = source.contents.fetch(file, Path(folder) / "blob")
                    except (NotFound, Damaged):
                        lost.append(file.sha256)
                        continue
                    self._contents.put(path)
                    path.unlink()
                    self.copied_bytes += file.size
                blobs[file.sha256] = file
        return lost

    def _put(self, content: bytes) -> File:
        with TemporaryDirectory(prefix="eyas-backup-") as folder:
            path = Path(folder) / "content"
            path.write_bytes(content)
            return self._contents.put(path)

    def _check_complete(self, backup: Backup) -> None:
        """Another backup that prunes at the same time could have deleted content of this one."""
        self._fs.invalidate_cache()
        sizes = {path.rsplit("/", 1)[1]: info["size"] for path, info in self._fs.find(f"{self._root}/blobs", detail=True).items()}
        missing = [digest for digest, size in backup.contents().items() if sizes.get(digest) != size]
        if missing:
            raise Damaged(f"{self.url}: {len(missing):,} files of the new backup are missing or cut off; make it again")

    def _check_same_manifests(self, backup: Backup, target: _Source) -> None:
        for path, file in backup.files.items():
            content = target.read(path) if path.startswith("manifests/") else None
            if content is not None and content != self._contents.read(file):
                raise Conflict(f"{target.url} has artifacts of another platform: {path} differs; restore into an empty store")


class _Source:
    """The manifests, logs and content of an artifact store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.contents = FsspecArtifacts(url)
        self._fs, self._root = opened(url)

    def paths(self) -> Sequence[str]:
        self._fs.invalidate_cache()
        names = (path for shelf in _SHELVES for path in self._fs.find(f"{self._root}/{shelf}"))
        return sorted(path.removeprefix(f"{self._root}/") for path in names if path.endswith((".json", ".txt")))

    def has(self, path: str) -> bool:
        return bool(self._fs.exists(f"{self._root}/{path}"))

    def read(self, path: str) -> bytes | None:
        try:
            content: bytes = self._fs.cat_file(f"{self._root}/{path}")
            return content
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        write_whole(self._fs, content, f"{self._root}/{path}")
