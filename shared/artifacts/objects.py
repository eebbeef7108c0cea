"""Storage of an artifact store: a folder, a bucket (s3://, gs://, az://), or another file system of fsspec.

Buckets use the client that also reads specs' data. Credentials and endpoint come from the environment; if variables named
EYAS_ARTIFACTS_AWS_... exist, S3 uses only those.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import fsspec
import obstore

from shared.datafiles.object_store import DataObject, ObjectStore, pause
from shared.domain.errors import Invalid, Unavailable
from shared.domain.object_uris import is_object, split, variable_prefix

OWN = "EYAS_ARTIFACTS_"
"""Prefix of AWS variables for the artifact store only."""
PART = 16 << 20
"""Larger files are uploaded in parts; a store accepts ten thousand parts."""
MOST_PARTS = 9_000
COPIED = 4 << 30
"""Larger objects cannot be copied in one request."""


def opened(url: str) -> tuple[Any, str]:
    """Returns a file system, and the root in it."""
    if is_object(url):
        root = url.rstrip("/")
        if not split(root)[0].partition("://")[2]:
            raise Invalid(f"{url}: expected {url.partition(':')[0]}://BUCKET or {url.partition(':')[0]}://BUCKET/PREFIX")
        own = {name.removeprefix(OWN): value for name, value in variables(url, os.environ).items()}
        return BucketFiles(ObjectStore(own, for_artifacts=True)), root
    fs, root = fsspec.core.url_to_fs(url)
    return fs, str(root).rstrip("/")


def variables(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the credentials and endpoint of this URL, to pass on to other processes."""
    if not is_object(url):
        return {}
    usual = variable_prefix(url)
    for prefix in (f"{OWN}AWS_", "AWS_") if usual == "AWS_" else (usual,):
        if matching := {name: value for name, value in environment.items() if name.startswith(prefix)}:
            return matching
    return {}


class BucketFiles:
    """The subset of fsspec's file system interface that artifacts need, for object stores; paths are URIs. Writes are atomic."""

    def __init__(self, store: ObjectStore, part: int = PART, copied: int = COPIED) -> None:
        self._store = store
        self._part = part
        self._copied = copied

    def info(self, path: str) -> dict[str, Any]:
        entry = self._store.find(path)
        if entry is None:
            raise FileNotFoundError(path)
        return _info(entry)

    def exists(self, path: str) -> bool:
        return self._store.find(path) is not None

    def size(self, path: str) -> int:
        return int(self.info(path)["size"])

    def find(self, path: str, detail: bool = False) -> dict[str, dict[str, Any]] | list[str]:
        """Returns everything below a path."""
        entries = {entry.uri: _info(entry) for entry in self._store.list(f"{path.rstrip('/')}/", most=None)}
        return entries if detail else list(entries)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if start is None or end is None:
            return b"".join(self._store.pieces(path))
        entry = self._store.find(path)
        if entry is None:
            raise FileNotFoundError(path)
        last = min(end, entry.size)
        return bytes(self._store.part(path, entry.tag, start, last)) if start < last else b""

    def get_file(self, path: str, local_path: str) -> None:
        self._store.fetch(path, Path(local_path))

    def pipe_file(self, path: str, content: bytes, mode: Literal["overwrite", "create"] = "overwrite") -> None:
        """With `create`, raises FileExistsError if the object exists, on stores that support `If-None-Match`."""
        if mode == "create":
            return self._create(path, content)
        return self._put(path, content)

    def put_file(self, local_path: str, path: str) -> None:
        self._put(path, Path(local_path), Path(local_path).stat().st_size)

    def copy(self, source: str, path: str) -> None:
        """Large objects, which no store copies in one request, are copied through this process."""
        size = self.size(source)
        client, key = self._store.client(source)
        if size <= self._copied:
            with self._store.errors(source):
                obstore.copy(client.store, key, split(path)[1])
            return
        with self._store.errors(path):
            writer = obstore.open_writer(client.store, split(path)[1], buffer_size=self._part_size(size), max_concurrency=4)
            for piece in self._store.pieces(source):
                writer.write(piece)
            writer.close()  # only now there is an object

    def mv(self, source: str, path: str) -> None:
        self.copy(source, path)
        self.rm_file(source)

    def rm_file(self, path: str) -> None:
        client, key = self._store.client(path)
        with self._store.errors(path):
            obstore.delete(client.store, key)

    def rm(self, path: str, recursive: bool = False) -> None:
        for object_path in self.find(path) if recursive else [path]:
            self.rm_file(object_path)

    def invalidate_cache(self) -> None:
        """There is no cache."""

    def _put(self, path: str, content: bytes | Path, size: int = 0) -> None:
        client, key = self._store.client(path)
        with self._store.errors(path):
            obstore.put(client.store, key, content, chunk_size=self._part_size(size), max_concurrency=4)

    def _part_size(self, size: int) -> int:
        return max(self._part, -(-size // MOST_PARTS))

    def _create(self, path: str, content: bytes) -> None:
        """Retries here, because only a repeated request can meet an object of its own, whose response was lost."""
        client, key = replace(self._store, tries=1).client(path)
        for attempt in range(self._store.tries):
            pause(attempt)
            try:
                with self._store.errors(path):
                    obstore.put(client.store, key, content, mode="create")
                return
            except FileExistsError:
                if attempt and self.cat_file(path) == content:
                    return
                raise
            except Unavailable:
                if attempt + 1 == self._store.tries:
                    raise


def _info(entry: DataObject) -> dict[str, Any]:
    """Times are whole seconds, because those of a HEAD are."""
    written: datetime = entry.written.replace(microsecond=0)
    return {"type": "file", "size": entry.size, "LastModified": written}
