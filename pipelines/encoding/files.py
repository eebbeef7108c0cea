"""Image files by name, below a local folder or an object store prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared.datafiles.object_store import DataObject, ObjectStore

_MOST_BYTES = 64 << 20


class UnreadableValue(Exception):
    """A row's value cannot be read; the message is the reason."""


class Files(Protocol):
    def content(self, name: str) -> bytes:
        """Returns the content; raises `UnreadableValue` for a missing file."""


@dataclass(frozen=True)
class Below:
    folder: Path

    def content(self, name: str) -> bytes:
        root = self.folder.resolve()
        try:
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                raise UnreadableValue(f"{name}: outside {self.folder}")
            if path.stat().st_size > _MOST_BYTES:
                raise UnreadableValue(f"{name}: larger than 64 MiB")
            return path.read_bytes()
        except (OSError, ValueError) as error:
            raise UnreadableValue(f"{name}: {getattr(error, 'strerror', None) or error}") from None


@dataclass(frozen=True)
class Objects:
    """Objects of a store, fetched one at a time. Errors of the store are not `UnreadableValue`."""

    store: ObjectStore
    objects: Mapping[str, DataObject]

    def content(self, name: str) -> bytes:
        data_object = self.objects.get(name)
        if data_object is None:
            raise UnreadableValue(f"{name}: object not found")
        if data_object.size > _MOST_BYTES:
            raise UnreadableValue(f"{name}: larger than 64 MiB")
        return b"".join(self.store.pieces(data_object.uri, data_object.tag))
