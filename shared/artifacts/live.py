"""Files of a working attempt in the artifact store: its progress, and a checkpoint from which a later attempt can continue.

    live/r1-train-2/progress.json
    live/r1-train-2/checkpoint.json, and the files that it names, each named by its content

An attempt writes only below its own name, so an abandoned attempt that still runs does no harm. `checkpoint.json` is written last,
atomically, with the digests of its files: a reader sees a complete checkpoint or none, and rejects damaged files. All files are deleted
when an attempt has published; those of other runs by the next garbage collection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.artifacts.objects import opened
from shared.artifacts.writing import copied, described, put_whole, write_whole
from shared.contracts.stage import File
from shared.domain.errors import Damaged, NotFound

_ATTEMPT = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")
PROGRESS, CHECKPOINT = "progress.json", "checkpoint.json"


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint as its attempt described it; its files are not verified before `fetch`."""

    attempt: str
    about: Mapping[str, Any]
    files: Mapping[str, File]


class FsspecLive:
    """Files of one attempt; `url` as the store's."""

    def __init__(self, url: str, attempt: str) -> None:
        if not _ATTEMPT.fullmatch(attempt):
            raise NotFound(f"no attempt is called {attempt!r}")
        self.attempt = attempt
        self._fs, root = opened(url)
        self._root = f"{root}/live"

    def tell(self, document: Mapping[str, Any]) -> None:
        """Replaces the attempt's progress."""
        write_whole(self._fs, json.dumps(document).encode(), f"{self._root}/{self.attempt}/{PROGRESS}")

    def progress(self) -> dict[str, Any] | None:
        return self._document(self.attempt, PROGRESS)

    def keep(self, about: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """Writes a checkpoint and removes the earlier ones, also of earlier attempts. Equal files are not written again."""
        before = self._read(self.attempt)
        there = {_name(name, file) for name, file in before.files.items()} if before is not None else set()
        new_files = {name: described(path) for name, path in files.items()}
        for name, path in files.items():
            if _name(name, new_files[name]) not in there:
                put_whole(self._fs, path, f"{self._root}/{self.attempt}/{_name(name, new_files[name])}")
        document = {"version": 1, "about": about, "files": {name: file.model_dump() for name, file in new_files.items()}}
        write_whole(self._fs, json.dumps(document).encode(), f"{self._root}/{self.attempt}/{CHECKPOINT}")
        for old in there - {_name(name, file) for name, file in new_files.items()}:
            with suppress(FileNotFoundError):
                self._fs.rm_file(f"{self._root}/{self.attempt}/{old}")
        if before is None:
            self._drop(self._tries()[1:])

    def checkpoints(self) -> Iterator[Checkpoint]:
        """Yields the checkpoints of this attempt and of earlier ones, the latest attempt first."""
        for attempt in self._tries():
            checkpoint = self._read(attempt)
            if checkpoint is not None:
                yield checkpoint

    def fetch(self, checkpoint: Checkpoint, name: str, to: Path) -> Path:
        """Raises Damaged if the content does not match, NotFound if the file is gone."""
        file = checkpoint.files[name]
        try:
            if not copied(self._fs, f"{self._root}/{checkpoint.attempt}/{_name(name, file)}", to, file.sha256):
                raise Damaged(f"the checkpoint of {checkpoint.attempt} is damaged: '{name}' does not match its digest")
        except FileNotFoundError:
            raise NotFound(f"the checkpoint of {checkpoint.attempt} is missing") from None
        return to

    def clear(self) -> None:
        """Deletes the files of this attempt and of earlier ones."""
        self._drop(self._tries())

    def _drop(self, attempts: Sequence[str]) -> None:
        self._fs.invalidate_cache()
        for attempt in attempts:
            with suppress(FileNotFoundError):
                self._fs.rm(f"{self._root}/{attempt}", recursive=True)

    def _tries(self) -> list[str]:
        stem, _, number = self.attempt.rpartition("-")
        return [f"{stem}-{at}" for at in range(int(number), 0, -1)] if number.isdecimal() else [self.attempt]

    def _read(self, attempt: str) -> Checkpoint | None:
        """Returns None if there is no checkpoint that this release can read."""
        document = self._document(attempt, CHECKPOINT)
        if document is None or document.get("version") != 1:
            return None
        try:
            return Checkpoint(attempt, document["about"], {name: File.model_validate(file) for name, file in document["files"].items()})
        except (KeyError, AttributeError, ValueError):  # pydantic's ValidationError is a ValueError
            return None

    def _document(self, attempt: str, name: str) -> dict[str, Any] | None:
        """Returns None if the document is missing, or lost its content in a crash."""
        try:
            document = json.loads(self._fs.cat_file(f"{self._root}/{attempt}/{name}"))
        except (FileNotFoundError, ValueError):
            return None
        return document if isinstance(document, dict) else None


def _name(name: str, file: File) -> str:
    return f"{name}-{file.sha256[:16]}"
