"""The artifact store for the garbage collector.

blobs/ab/abcd...            files by their content
manifests/r1-etl-1.json     manifests of attempts
pins/r1-etl-1.*.json        blobs that an attempt is about to need
trash/{time}/blobs/..., trash/{time}/manifests/...    files that were not needed at that time
live/r1-train-1/...         progress and checkpoints of a working attempt
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from shared.artifacts.objects import opened
from shared.artifacts.superseded import superseded_blobs
from shared.artifacts.writing import written_at
from shared.contracts.stage import Manifest
from shared.contracts.strict import read
from shared.domain.errors import Damaged, Invalid
from shared.ports import BlobPin, Shelf, StoredObject, TrashItem

_STAMP = "%Y%m%dT%H%M%S.%fZ"
_SUFFIX = ".json"
_COMPACTION = "compact"


class FsspecTrash:
    """Implements the Trash port, for the same URL as the store."""

    def __init__(self, url: str) -> None:
        self._fs, self._root = opened(url)
        self._referenced: dict[str, frozenset[str]] = {}  # manifests never change
        self._compactions: dict[str, Manifest] = {}

    def pins(self) -> Sequence[BlobPin]:
        pins = []
        for path, info in self._files("pins"):
            with suppress(FileNotFoundError):
                pins.append(self._pin(path, info))
        return pins

    def shelf(self, shelf: Shelf) -> Sequence[StoredObject]:
        files = []
        for path, info in self._files(shelf):
            with suppress(FileNotFoundError):
                files.append(StoredObject(_named(path), int(info["size"]), written_at(self._fs, path, info)))
        return files

    def hide(self, place: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{place}")

    def trash(self) -> Sequence[TrashItem]:
        discarded = []
        for path, info in self._files("trash"):
            batch, shelf, *_ = path.removeprefix(f"{self._root}/trash/").split("/")
            at = datetime.strptime(batch, _STAMP).replace(tzinfo=UTC)
            discarded.append(TrashItem("blobs" if shelf == "blobs" else "manifests", _named(path), int(info["size"]), at, path))
        return discarded

    def named(self, attempt: str) -> frozenset[str]:
        if attempt not in self._referenced:
            digests = self._read(attempt)
            if digests is None:  # erased meanwhile, so it names no blobs
                return frozenset()
            self._referenced[attempt] = digests
        return self._referenced[attempt]

    def superseded(self) -> frozenset[str]:
        return superseded_blobs(self._compactions.values())

    def discard(self, shelf: Shelf, file: StoredObject, now: datetime) -> bool:
        source = self._place(shelf, file.name)
        target = f"{self._root}/trash/{now.astimezone(UTC).strftime(_STAMP)}/{shelf}/{source.rsplit('/', 1)[1]}"
        try:
            if written_at(self._fs, source, self._fs.info(source)) != file.written_at:
                return False
            self._move(source, target)
        except FileNotFoundError:
            return False
        return True

    def restore(self, discarded: TrashItem) -> None:
        with suppress(FileNotFoundError):
            self._move(discarded.place, self._place(discarded.shelf, discarded.name))

    def erase(self, discarded: TrashItem) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(discarded.place)
        if isinstance(self._fs, LocalFileSystem):
            for folder in list(Path(discarded.place).parents)[:2]:  # the folders of the shelf and of the time
                with suppress(OSError):
                    folder.rmdir()

    def unpin(self, pin: BlobPin) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/pins/{pin.name}")

    def live(self) -> Sequence[str]:
        return sorted({path.removeprefix(f"{self._root}/live/").split("/")[0] for path, _ in self._files("live")})

    def drop_live(self, attempt: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm(f"{self._root}/live/{attempt}", recursive=True)

    def _files(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        self._fs.invalidate_cache()
        entries: dict[str, dict[str, Any]] = self._fs.find(f"{self._root}/{folder}", detail=True)
        yield from ((path, info) for path, info in entries.items() if info.get("type") == "file")

    def _pin(self, path: str, info: dict[str, Any]) -> BlobPin:
        name, written = path.rsplit("/", 1)[1], written_at(self._fs, path, info)
        if not name.endswith(_SUFFIX):  # partial file of a writer that died
            return BlobPin(name, "", frozenset(), written)
        try:
            document = json.loads(self._fs.cat_file(path))
            return BlobPin(name, str(document["attempt"]), frozenset(map(str, document["blobs"])), written)
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{path}: pin cannot be read ({error}), its artifacts are unknown: remove it when no run is active") from None

    def _read(self, attempt: str) -> frozenset[str] | None:
        paths = [
            self._place("manifests", attempt),
            *(discarded.place for discarded in self.trash() if (discarded.shelf, discarded.name) == ("manifests", attempt)),
        ]
        for path in (*paths, paths[0]):  # in the trash or, if restored meanwhile, in its place
            with suppress(FileNotFoundError):
                try:
                    manifest = read(Manifest, json.loads(self._fs.cat_file(path)), f"manifest of {attempt}")
                except (ValueError, Invalid) as error:
                    raise Damaged(f"{path}: manifest cannot be read ({error}): restore it from a backup") from None
                if manifest.run.startswith(_COMPACTION):
                    self._compactions[attempt] = manifest
                return frozenset(file.sha256 for file in manifest.files.values())
        return None

    def _place(self, shelf: Shelf, name: str) -> str:
        return f"{self._root}/blobs/{name[:2]}/{name}" if shelf == "blobs" else f"{self._root}/manifests/{name}{_suffix(name)}"

    def _move(self, source: str, target: str) -> None:
        if isinstance(self._fs, LocalFileSystem):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(source).replace(target)
        else:
            self._fs.mv(source, target)


def _suffix(name: str) -> str:
    """A partial file keeps its name."""
    return "" if name.endswith(".part") else _SUFFIX


def _named(path: str) -> str:
    return path.rsplit("/", 1)[1].removesuffix(_SUFFIX)
