"""Ports for running stages and for their artifacts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from shared.contracts.progress import Progress
from shared.contracts.stage import File, Manifest, StageSpec
from shared.domain.run import Job


class Executor(Protocol):
    """Runs stages. A name is used once; starting an existing attempt adopts it."""

    def start(self, spec: StageSpec) -> None: ...

    def observe(self, attempt: str) -> Job | None:
        """None: never started here."""

    def stop(self, attempt: str) -> None:
        """Stops the attempt and all its processes; does nothing if it does not exist."""

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        """Returns text from a byte offset on, and the next offset."""


class ArtifactStore(Protocol):
    url: str

    def put(self, path: Path) -> File: ...

    def pin(self, attempt: str, files: Iterable[File]) -> None:
        """Protects an attempt's inputs from garbage collection until its run has ended; raises NotFound if a file is missing."""

    def fetch(self, file: File, to: Path) -> Path: ...

    def read(self, file: File) -> bytes: ...

    def show(self, file: File, place: str) -> None:
        """Gives a file a second name for people; no program reads it there."""

    def hide(self, place: str) -> None:
        """Removes a name that `show` gave."""

    def erase(self, file: File) -> None:
        """Deletes content at once. The caller knows that nothing needs it."""

    def holds(self, file: File) -> bool:
        """Returns whether the file exists with its size and, if cheap to check, its content; `fetch` always checks the content."""

    def publish(self, manifest: Manifest) -> None: ...

    def manifest(self, attempt: str) -> Manifest | None: ...

    def keep_log(self, attempt: str, path: Path) -> None:
        """Stores the log of an attempt, for the time after its place of execution is gone."""

    def kept_log(self, attempt: str, offset: int, most: int) -> bytes | None:
        """Returns at most `most` bytes of the log from a byte offset on; None without a log."""

    def progress(self, attempt: str) -> Progress | None:
        """Returns the progress of a working attempt; None if it has not reported, or has ended."""
