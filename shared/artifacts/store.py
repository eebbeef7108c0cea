"""The artifact store: files by their sha256, manifests by their attempt, on any fsspec file system.

A file is complete or absent (written beside its place, then moved), so a reader never meets half of one. A manifest
is written last: what no manifest names was never published. Names are checked, so no value of a user's becomes a path.

Garbage is collected at any time (docs/adr/0011-garbage-collection-with-pins-and-trash.md). So whoever is going to need files *pins* them
first, and then looks whether they are there: the collector moves first and then looks for pins, so one of the two notices the other.
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
    """Implements the ArtifactStore port; `url` is a folder or any URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._root = opened(url)
        self._hashed: dict[str, tuple[int, int, int]] = {}
        """Local files whose content was compared with their digest, as they were then."""

    def is_empty(self) -> bool:
        """Whether no attempt has ever published or stored anything here that is left."""
        self._fs.invalidate_cache()
        return not any(self._fs.find(f"{self._root}/{folder}") for folder in ("manifests", "blobs"))

    def put(self, path: Path) -> File:
        """Stores a local file; equal content is stored once, and what was damaged since is written anew. Its age begins again."""
        file = described(path)
        target = self._blob(file)
        if not self._renewed(target, file):
            put_whole(self._fs, path, target)
        return file

    def pin(self, attempt: str, files: Iterable[File]) -> None:
        """Keeps the inputs of an attempt until its run has ended; NotFound where one isn't there."""
        wanted = list(files)
        self._write_pin(self._pin(attempt, "inputs"), attempt, wanted)
        for file in wanted:
            if not self._fs.exists(self._blob(file)):
                raise NotFound(f"artifact {file.sha256[:12]}, which {attempt} needs, is not in {self.url}")

    def _damaged(self, file: File) -> Damaged:
        label = f"artifact {file.sha256[:12]} in {self.url}"
        return Damaged(f"{label} is damaged: its content doesn't match its address; the next run rebuilds it")

    def _renewed(self, target: str, file: File) -> bool:
        """Whether the content is there already, now as if it were new. Elsewhere than on a disk, checking costs as much as writing."""
        if not isinstance(self._fs, LocalFileSystem):
            return False
        try:
            there = described(Path(target))
            os.utime(target)
        except FileNotFoundError:  # never there, or collected just now
            return False
        return there == file

    def fetch(self, file: File, to: Path) -> Path:
        """Copies a file to a local path, refusing content that doesn't match its address."""
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._fs.open(self._blob(file), "rb") as source:
                if not copied(source, to, file.sha256):
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
        """Moves a damaged file to `damaged/`, so that nothing is built on it again. False where its content is right after all."""
        source, target = self._blob(file), f"{self._root}/damaged/{file.sha256}"
        with self._fs.open(source, "rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256:
                return False
        if isinstance(self._fs, LocalFileSystem):
            Path(target).parent.mkdir(exist_ok=True)
        self._fs.mv(source, target)
        return True

    def show(self, file: File, place: str) -> None:
        """A second name of a file, for people: a link that can't be written to, or a copy where there are no links."""
        if not _PLACE.fullmatch(place) or ".." in place:
            raise Invalid(f"{place!r} is no place for a file: lower-case letters, digits and -_.=/ only")
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

    def publish(self, manifest: Manifest) -> None:
        """Publishes an attempt: once. A second manifest of the same attempt is refused."""
        for _ in self.publishing(manifest):
            pass

    def publishing(self, manifest: Manifest) -> Iterator[str]:
        """`publish`, step by step: pin, look, publish, unpin. In no other order is it safe from the collector."""
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
        """Keeps what an attempt printed; a log that is kept already is replaced."""
        put_whole(self._fs, path, self._log(attempt))

    def kept_log(self, attempt: str, offset: int, most: int) -> bytes | None:
        """At most `most` bytes of an attempt's log, from a byte offset on; None if none is kept."""
        try:
            with self._fs.open(self._log(attempt), "rb") as stream:
                stream.seek(offset)
                content: bytes = stream.read(most)
                return content
        except FileNotFoundError:
            return None

    def progress(self, attempt: str) -> Progress | None:
        """How far an attempt is that works; None where it hasn't told, or has ended."""
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
        """Writes what isn't there yet: of two who try, one succeeds."""
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
