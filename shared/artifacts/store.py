"""Artifact store: files by their sha256, manifests by their attempt, on any fsspec file system.

A file is complete or absent (written under a temporary name, then moved), so a reader never sees a partial file. A manifest is written
last: files without a manifest were never published. Names are checked, so no user value becomes a path.

Garbage collection can run at any time (docs/adr/0011-garbage-collection-with-pins-and-trash.md). So a process *pins* the files that it
needs and then checks that they exist; the collector moves files first and then checks for pins, so one of the two notices the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fsspec.implementations.local import LocalFileSystem

from shared.artifacts.live import PROGRESS, FsspecLive
from shared.artifacts.objects import opened
from shared.artifacts.writing import beside, copied, described, put_whole, write_whole
from shared.contracts.progress import Progress
from shared.contracts.stage import File, Manifest
from shared.contracts.strict import read
from shared.domain.errors import Conflict, Damaged, Invalid, NotFound, Unavailable

HASHED = 1 << 30
"""Bytes of a local file whose content `holds` compares; of larger files, and on other file systems, it compares the size."""
_ATTEMPT = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")
_PLACE = re.compile(r"[a-z0-9][a-z0-9._=-]*(/[a-z0-9][a-z0-9._=-]*)*")


class FsspecArtifacts:
    """Implements the ArtifactStore port; `url` is a folder or a URL that fsspec supports."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._root = opened(url)
        self._hashed: dict[str, tuple[int, int, int]] = {}
        """Verified local files, with their state at that time."""

    def is_empty(self) -> bool:
        """Returns whether the store has no manifests and no blobs."""
        self._fs.invalidate_cache()
        return not any(self._fs.find(f"{self._root}/{folder}") for folder in ("manifests", "blobs"))

    def put(self, path: Path) -> File:
        """Stores a local file; equal content is stored once, and a damaged copy is replaced. Its age starts again."""
        file = described(path)
        target = self._blob(file)
        if not self._renewed(target, file):
            put_whole(self._fs, path, target)
        return file

    def pin(self, attempt: str, files: Iterable[File]) -> None:
        """Protects the inputs of an attempt until its run has ended; raises NotFound if a file is missing."""
        wanted = list(files)
        self._write_pin(self._pin(attempt, "inputs"), attempt, wanted)
        for file in wanted:
            if not self._fs.exists(self._blob(file)):
                raise NotFound(f"artifact {file.sha256[:12]}, which {attempt} needs, is not in {self.url}")

    def _damaged(self, file: File) -> Damaged:
        label = f"artifact {file.sha256[:12]} in {self.url}"
        return Damaged(f"{label} is damaged: its content does not match its digest; the next run rebuilds it")

    def _renewed(self, target: str, file: File) -> bool:
        """Renews the age of equal content; False if absent. Only on local disks: elsewhere a check costs as much as a write."""
        if not isinstance(self._fs, LocalFileSystem):
            return False
        try:
            there = described(Path(target))
            os.utime(target)
        except FileNotFoundError:  # never stored, or just collected
            return False
        return there == file

    def fetch(self, file: File, to: Path) -> Path:
        """Copies a file to a local path; rejects content that does not match its digest."""
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not copied(self._fs, self._blob(file), to, file.sha256):
                raise self._damaged(file)
        except FileNotFoundError:
            raise NotFound(f"artifact {file.sha256[:12]} is not in {self.url}") from None
        return to

    def read(self, file: File) -> bytes:
        try:
            content: bytes = self._fs.cat_file(self._blob(file))
        except FileNotFoundError:
            raise NotFound(f"artifact {file.sha256[:12]} is not in {self.url}") from None
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise self._damaged(file)
        return content

    def holds(self, file: File) -> bool:
        target = self._blob(file)
        if not isinstance(self._fs, LocalFileSystem):
            return bool(self._fs.exists(target) and self._fs.size(target) == file.size)
        try:
            stat = Path(target).stat()
        except FileNotFoundError:
            return False
        if stat.st_size != file.size or file.size > HASHED:
            return stat.st_size == file.size
        fingerprint = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
        if self._hashed.get(file.sha256) != fingerprint:
            if described(Path(target)) != file:
                return False
            self._hashed[file.sha256] = fingerprint
        return True

    def set_aside(self, file: File) -> bool:
        """Moves a damaged file to `damaged/`, so that it is not used again. Returns False if its content is correct."""
        source, target = self._blob(file), f"{self._root}/damaged/{file.sha256}"
        if isinstance(self._fs, LocalFileSystem):
            if described(Path(source)) == file:
                return False
            Path(target).parent.mkdir(exist_ok=True)
        else:
            with TemporaryDirectory() as folder:
                if copied(self._fs, source, Path(folder) / "copy", file.sha256):
                    return False
        self._fs.mv(source, target)
        return True

    def show(self, file: File, place: str) -> None:
        """Gives a file a second name for people: a read-only link, or a copy if links are not supported."""
        if not _PLACE.fullmatch(place) or ".." in place:
            raise Invalid(f"{place!r} is not a valid path: use lower-case letters, digits and -_.=/")
        source, target = self._blob(file), f"{self._root}/{place}"
        if self._fs.exists(target):
            return
        try:
            if isinstance(self._fs, LocalFileSystem):
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                _link(Path(source), Path(target))
            else:
                self._fs.copy(source, target)
        except FileNotFoundError:
            raise NotFound(f"artifact {file.sha256[:12]} is not in {self.url}") from None

    def hide(self, place: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{place}")

    def erase(self, file: File) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._blob(file))

    def publish(self, manifest: Manifest) -> None:
        """Publishes an attempt once. A second manifest of the same attempt is rejected."""
        for _ in self.publishing(manifest):
            pass

    def publishing(self, manifest: Manifest) -> Iterator[str]:
        """`publish`, step by step: pin, check, publish, unpin. No other order is safe from garbage collection."""
        target = self._manifest(manifest.attempt)
        if self._fs.exists(target):
            raise Conflict(f"attempt {manifest.attempt} is published already")
        pin = self._pin(manifest.attempt, secrets.token_hex(4))
        self._write_pin(pin, manifest.attempt, manifest.files.values())
        yield "pinned"
        try:
            for name, file in manifest.files.items():
                if not self._fs.exists(self._blob(file)):
                    raise NotFound(f"manifest of {manifest.attempt} names '{name}', which is not in {self.url}")
                yield "looked"
            if not self._fs.exists(pin):
                raise Unavailable(f"attempt {manifest.attempt} took so long to publish that its files may have been collected")
            self._create(target, manifest.model_dump_json(indent=1).encode(), manifest.attempt)
            yield "published"
        finally:
            with suppress(FileNotFoundError):
                self._fs.rm_file(pin)

    def manifest(self, attempt: str) -> Manifest | None:
        try:
            content = self._fs.cat_file(self._manifest(attempt))
        except FileNotFoundError:
            return None
        return read(Manifest, json.loads(content), f"manifest of {attempt}")

    def keep_log(self, attempt: str, path: Path) -> None:
        """Stores the log of an attempt; replaces an earlier one."""
        put_whole(self._fs, path, self._log(attempt))

    def kept_log(self, attempt: str, offset: int, most: int) -> bytes | None:
        """Returns at most `most` bytes of an attempt's log from a byte offset on; None without a log."""
        try:
            content: bytes = self._fs.cat_file(self._log(attempt), offset, offset + most)
            return content
        except FileNotFoundError:
            return None

    def progress(self, attempt: str) -> Progress | None:
        """Returns the progress of a working attempt; None if it has not reported, or has ended."""
        document = FsspecLive(self.url, attempt).progress()
        return None if document is None else read(Progress, document, f"{PROGRESS} of {attempt}")

    def _log(self, attempt: str) -> str:
        return self._of_attempt("logs", attempt, "txt")

    def _blob(self, file: File) -> str:
        return f"{self._root}/blobs/{file.sha256[:2]}/{file.sha256}"

    def _manifest(self, attempt: str) -> str:
        return self._of_attempt("manifests", attempt, "json")

    def _of_attempt(self, folder: str, attempt: str, suffix: str) -> str:
        if not _ATTEMPT.fullmatch(attempt):
            raise NotFound(f"no attempt is called {attempt!r}")
        return f"{self._root}/{folder}/{attempt}.{suffix}"

    def _pin(self, attempt: str, purpose: str) -> str:
        self._manifest(attempt)
        return f"{self._root}/pins/{attempt}.{purpose}.json"

    def _write_pin(self, pin: str, attempt: str, files: Iterable[File]) -> None:
        document = {"attempt": attempt, "blobs": sorted({file.sha256 for file in files})}
        write_whole(self._fs, json.dumps(document).encode(), pin)

    def _create(self, target: str, content: bytes, attempt: str) -> None:
        """Writes a new file; of two concurrent writers, one succeeds."""
        try:
            if isinstance(self._fs, LocalFileSystem):
                part = beside(self._fs, target)
                try:
                    self._fs.pipe_file(part, content)
                    os.link(part, target)
                finally:
                    Path(part).unlink(missing_ok=True)
            else:
                self._fs.pipe_file(target, content, mode="create")
        except FileExistsError:
            raise Conflict(f"attempt {attempt} is published already") from None


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
        target.chmod(target.stat().st_mode & 0o444)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            shutil.copyfile(source, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
