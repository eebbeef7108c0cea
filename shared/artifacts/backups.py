"""Backups in a folder or a bucket: content by its digest, shared by all backups, and one document for each backup.

    blobs/ab/abcd...                    dumps of the database, artifacts, manifests and logs
    backups/20261127T101500Z.json       written last, so a backup is complete or absent
    forgotten.json                      users who were forgotten until the newest backup

A place holds the backups of one installation, because old ones are deleted by their number.

Artifacts are copied before and after the dump of the database. What the dump names existed before it, or was published during it; so the
garbage collector would have to erase a file within seconds of its publication to make a backup incomplete, and it waits much longer.

Content that archives of events do not need any more is not copied, and not reported as missing (shared.artifacts.superseded).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from fsspec.implementations.local import LocalFileSystem

from shared.artifacts.objects import opened
from shared.artifacts.store import FsspecArtifacts
from shared.artifacts.superseded import superseded_blobs
from shared.artifacts.writing import described, write_whole, written_at
from shared.contracts.backup import NAME, Backup, DatabaseDump, DatabaseKind, ForgottenLedger, ForgottenTimes, Tables, name_of
from shared.contracts.stage import File, Manifest
from shared.contracts.strict import Strict, read
from shared.domain.errors import Conflict, Damaged, Invalid, NotFound

M = TypeVar("M", bound=Strict)
Dump = Callable[[Path], tuple[DatabaseKind, Tables]]
"""Writes a dump to a path; returns the database's kind and the revision of its tables."""
Tell = Callable[[str], None]
_SHELVES = ("manifests", "logs")
_COMPACTIONS = "manifests/compact"
_UNNAMED_FOR = timedelta(days=1)
"""Age below which content that no backup names stays: a backup that runs now may need it."""


class BackupStore:
    def __init__(self, url: str, tell: Tell = lambda _: None) -> None:
        self.url = url
        self._tell = tell
        try:
            self._fs, self._root = opened(url)
        except ValueError as error:
            raise Invalid(f"{url}: no place for backups: {error}; name a folder or s3://BUCKET/PREFIX") from None
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
        return self._read(Backup, self._document(name or names[-1]), "the backup's document is damaged; choose another backup")

    def ledger(self, installation: str) -> ForgottenLedger:
        """Returns the users who were forgotten until the newest backup."""
        try:
            ledger = self._read(
                ForgottenLedger,
                self._ledger,
                "the ledger of forgotten users is damaged; restore this file from a copy, or move it away: backups older than the next one"
                " then bring back users who were forgotten after them",
            )
        except FileNotFoundError:
            return ForgottenLedger(installation=installation)
        if ledger.installation != installation:
            raise Conflict(f"{self._ledger} is of another installation; name another folder or prefix")
        return ledger

    def take(
        self,
        installation: str,
        artifacts: str,
        dump: Dump,
        version_files: Callable[[], Iterable[File]],
        forgotten: Callable[[], ForgottenTimes],
    ) -> Backup:
        """Makes a backup. `version_files`: files of the registered versions; `forgotten`: the database's forgotten users; both are read
        after the dump."""
        names = self.names()
        if names and self.open(names[-1]).installation != installation:
            raise Conflict(f"{self.url} has backups of another installation; name another folder or prefix")
        self.ledger(installation)  # a damaged one is refused at once
        copy = _Copy(_Source(artifacts), self._contents, self._sizes(), self._tell)
        copy.add_published()
        while self._fs.exists(self._document(name_of(at := datetime.now(UTC).replace(microsecond=0)))):
            time.sleep(0.1)  # a name is a second
        self._tell("database: writing the dump")
        with TemporaryDirectory(prefix="eyas-backup-", dir=self._staging()) as folder:
            path = Path(folder) / "dump"
            kind, tables = dump(path)
            database = DatabaseDump(kind=kind, tables=tables, file=copy.put(path))
        copy.add_published()
        copy.add_blobs(version_files())
        copy.drop_superseded()
        backup = Backup(
            at=at,
            installation=installation,
            database=database,
            files=copy.files,
            blobs=tuple(copy.blobs.values()),
            missing=tuple(copy.missing),
        )
        self._check_complete(backup)
        self._extend_ledger(installation, forgotten())
        write_whole(self._fs, backup.model_dump_json(indent=1).encode(), self._document(backup.name))
        self.copied_bytes = copy.bytes
        return backup

    def restore(self, backup: Backup, artifacts: str, load: Callable[[Path], None] | None) -> None:
        """Copies the artifacts that are missing, then calls `load` with the dump, if given, which it may change. Each file is compared with
        its digest. Can be repeated after an interruption."""
        target, store = _Source(artifacts), FsspecArtifacts(artifacts)
        self._check_same_manifests(backup, target)
        superseded = superseded_blobs(target.compactions(target.paths()))
        blobs = [file for file in backup.blobs if file.sha256 not in superseded]
        with TemporaryDirectory(prefix="eyas-restore-") as folder:
            dump = self._contents.fetch(backup.database.file, Path(folder) / "dump") if load is not None else None
            for number, file in enumerate(blobs, 1):
                if not store.holds(file):
                    path = self._contents.fetch(file, Path(folder) / "blob")
                    store.put(path)
                    path.unlink()
                    self.copied_bytes += file.size
                self._tell(f"artifacts: {number:,} of {len(blobs):,} restored")
            for path_in_store, file in backup.files.items():
                if not target.has(path_in_store):
                    target.write(path_in_store, self._contents.read(file))
            if load is not None and dump is not None:
                self._tell("database: loading the dump")
                load(dump)

    def prune(self, keep: int, now: datetime) -> Sequence[str]:
        """Keeps the newest `keep` backups, and deletes the older ones with the content that only they need. Returns their names."""
        names = self.names()
        old_names = names[: max(0, len(names) - keep)]
        needed = {digest for name in names[len(old_names) :] for digest in self.open(name).contents()}
        for name in old_names:
            self._fs.rm_file(self._document(name))
        for path, info in self._fs.find(f"{self._root}/blobs", detail=True).items():
            if path.rsplit("/", 1)[1] not in needed and now - written_at(self._fs, path, info) > _UNNAMED_FOR:
                self._fs.rm_file(path)
        return old_names

    @property
    def _ledger(self) -> str:
        return f"{self._root}/forgotten.json"

    def _extend_ledger(self, installation: str, users: ForgottenTimes) -> None:
        ledger = self.ledger(installation)
        joined = ledger.joined(users)
        if joined != ledger:
            write_whole(self._fs, joined.model_dump_json(indent=1).encode(), self._ledger)

    def _read(self, model: type[M], path: str, damage: str) -> M:
        try:
            document = json.loads(self._fs.cat_file(path))
        except ValueError:
            raise Damaged(f"{path}: {damage}") from None
        if isinstance(document, dict) and document.get("version") != 1:
            raise Invalid(f"{path}: a newer release wrote this backup; use that release")
        return read(model, document, path)

    def _document(self, name: str) -> str:
        return f"{self._root}/backups/{name}.json"

    def _staging(self) -> str | None:
        """Returns a folder for the dump: on the disk of the backups, or else the machine's folder for temporary files."""
        if not isinstance(self._fs, LocalFileSystem):
            return None
        Path(self._root).mkdir(parents=True, exist_ok=True)
        return self._root

    def _sizes(self) -> dict[str, int]:
        """Returns the size of all content by its digest."""
        self._fs.invalidate_cache()
        return {path.rsplit("/", 1)[1]: info["size"] for path, info in self._fs.find(f"{self._root}/blobs", detail=True).items()}

    def _check_complete(self, backup: Backup) -> None:
        """Another backup that prunes at the same time could have deleted content of this one."""
        sizes = self._sizes()
        missing = [digest for digest, size in backup.contents().items() if sizes.get(digest) != size]
        if missing:
            raise Damaged(f"{self.url}: {len(missing):,} files of the new backup are missing or cut off; make it again")

    def _check_same_manifests(self, backup: Backup, target: _Source) -> None:
        for path, file in backup.files.items():
            content = target.read(path) if path.startswith("manifests/") else None
            if content is not None and content != self._contents.read(file):
                raise Conflict(f"{target.url} has artifacts of another platform: {path} differs; restore into an empty store")


class _Copy:
    """Copy of an artifact store's published content into a backup. `sizes`: content that earlier backups have copied."""

    def __init__(self, source: _Source, target: FsspecArtifacts, sizes: dict[str, int], tell: Tell) -> None:
        self._source, self._target, self._sizes, self._tell = source, target, sizes, tell
        self.files: dict[str, File] = {}
        self.blobs: dict[str, File] = {}
        self.missing: dict[str, None] = {}
        self.bytes = 0
        self._compactions: list[Manifest] = []

    def add_published(self) -> None:
        """Copies the manifests and logs that are new since the last call, and the content that the manifests name."""
        paths = [path for path in self._source.paths() if path not in self.files]
        self._compactions += self._source.compactions(paths)
        superseded = superseded_blobs(self._compactions)
        for number, path in enumerate(paths, 1):
            self._tell(f"artifacts: {number:,} of {len(paths):,} attempts copied")
            content = self._source.read(path)
            if content is None:  # collected meanwhile
                continue
            if path.startswith("manifests/"):
                manifest = _manifest(content, path)
                if manifest is None:
                    self.missing[path] = None
                    continue
                lost = self.add_blobs(file for file in manifest.files.values() if file.sha256 not in superseded)
                if lost and not self._source.has(path):
                    self.missing = {digest: None for digest in self.missing if digest not in lost}
                    continue
            with TemporaryDirectory(prefix="eyas-backup-") as folder:
                copied = Path(folder) / "content"
                copied.write_bytes(content)
                self.files[path] = self.put(copied)

    def add_blobs(self, wanted: Iterable[File]) -> set[str]:
        """Copies content; returns the digests of what is missing or damaged."""
        lost: set[str] = set()
        with TemporaryDirectory(prefix="eyas-backup-") as folder:
            for file in wanted:
                if file.sha256 not in self.blobs and self._sizes.get(file.sha256) != file.size:
                    try:
                        self.put(self._source.contents.fetch(file, Path(folder) / "blob"))
                    except (NotFound, Damaged):
                        lost.add(file.sha256)
                        continue
                self.blobs[file.sha256] = file
        self.missing |= dict.fromkeys(sorted(lost))
        return lost

    def drop_superseded(self) -> None:
        """Leaves out what compactions have made unnecessary since it was copied."""
        for digest in superseded_blobs(self._compactions):
            self.blobs.pop(digest, None)
            self.missing.pop(digest, None)

    def put(self, path: Path) -> File:
        """Stores a file, unless an earlier backup has its content; deletes the path."""
        file = described(path)
        if self._sizes.get(file.sha256) != file.size:
            self._target.put(path)
            self._sizes[file.sha256] = file.size
            self.bytes += file.size
        path.unlink()
        return file


def _manifest(content: bytes, path: str) -> Manifest | None:
    """Returns None for a damaged manifest."""
    try:
        return read(Manifest, json.loads(content), path)
    except (ValueError, Invalid):
        return None


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

    def compactions(self, paths: Iterable[str]) -> Iterator[Manifest]:
        """Yields the readable manifests of compactions among these paths."""
        for path in paths:
            content = self.read(path) if path.startswith(_COMPACTIONS) else None
            manifest = None if content is None else _manifest(content, path)
            if manifest is not None:
                yield manifest

    def write(self, path: str, content: bytes) -> None:
        write_whole(self._fs, content, f"{self._root}/{path}")
