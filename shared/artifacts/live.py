"""What an attempt leaves in the artifact store while it works: how far it is, and from where a next try of it can go on.

    live/r1-train-2/progress.json
    live/r1-train-2/checkpoint.json, and the files that it names, each called after its content

An attempt writes below its own name alone, so one that was given up and works on does no harm. `checkpoint.json` is written last, whole,
and says what its files hold: a reader meets all of a checkpoint or none, and what was damaged isn't taken. All of it goes when a try has
published, and of runs that ended otherwise with the next collection.
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
    """A checkpoint, by what its attempt says of it; its files aren't looked at before they are fetched."""

    attempt: str
    about: Mapping[str, Any]
    files: Mapping[str, File]


class FsspecLive:
    """Of one attempt; `url` as the store's."""

    def __init__(self, url: str, attempt: str) -> None:
        if not _ATTEMPT.fullmatch(attempt):
            raise NotFound(f"no attempt is called {attempt!r}")
        self.attempt = attempt
        self._fs, root = opened(url)
        self._root = f"{root}/live"

    def tell(self, document: Mapping[str, Any]) -> None:
        """How far it is: in place of what it told before."""
        write_whole(self._fs, json.dumps(document).encode(), f"{self._root}/{self.attempt}/{PROGRESS}")

    def progress(self) -> dict[str, Any] | None:
        return self._document(self.attempt, PROGRESS)

    def keep(self, about: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """A checkpoint, in place of the one before, and of those of earlier tries. What both have in common isn't written again."""
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
        """The checkpoints of this attempt and of the tries before it, the latest try's first."""
        for attempt in self._tries():
            checkpoint = self._read(attempt)
            if checkpoint is not None:
                yield checkpoint

    def fetch(self, checkpoint: Checkpoint, name: str, to: Path) -> Path:
        """Damaged where it isn't what was kept, NotFound where it is gone."""
        file = checkpoint.files[name]
        try:
            with self._fs.open(f"{self._root}/{checkpoint.attempt}/{_name(name, file)}", "rb") as source:
                if not copied(source, to, file.sha256):
                    raise Damaged(f"the checkpoint of {checkpoint.attempt} is damaged: '{name}' isn't what was kept")
        except FileNotFoundError:
            raise NotFound(f"the checkpoint of {checkpoint.attempt} is gone") from None
        return to

    def clear(self) -> None:
        """Of this attempt and of the tries before it."""
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
        """None where none is there, or none that this release can read."""
        document = self._document(attempt, CHECKPOINT)
        if document is None or document.get("version") != 1:
            return None
        try:
            return Checkpoint(attempt, document["about"], {name: File.model_validate(file) for name, file in document["files"].items()})
        except (KeyError, AttributeError, ValueError):  # pydantic's own is a ValueError
            return None

    def _document(self, attempt: str, name: str) -> dict[str, Any] | None:
        """None where there is none, or where a machine that fell has left it without its content."""
        try:
            document = json.loads(self._fs.cat_file(f"{self._root}/{attempt}/{name}"))
        except (FileNotFoundError, ValueError):
            return None
        return document if isinstance(document, dict) else None


def _name(name: str, file: File) -> str:
    return f"{name}-{file.sha256[:16]}"
