"""Where stages run, and what they leave."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from shared.contracts.progress import Progress
from shared.contracts.stage import File, Manifest, StageSpec
from shared.domain.run import Job


class Executor(Protocol):
    """Runs stages. A name is used once; starting it again adopts what is there."""

    def start(self, spec: StageSpec) -> None: ...

    def observe(self, attempt: str) -> Job | None:
        """None: never started here."""

    def stop(self, attempt: str) -> None:
        """Ends it and everything that it started; stopping what isn't there is fine."""

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        """Text from a byte offset on, and the offset to go on from."""


class ArtifactStore(Protocol):
    url: str

    def put(self, path: Path) -> File: ...

    def pin(self, attempt: str, files: Iterable[File]) -> None:
        """Keeps an attempt's inputs from being collected until its run has ended; NotFound where one isn't there."""

    def fetch(self, file: File, to: Path) -> Path: ...

    def read(self, file: File) -> bytes: ...

    def show(self, file: File, place: str) -> None:
        """Gives a file a name for people to find it by; nothing reads it there."""

    def holds(self, file: File) -> bool:
        """It is there in its full size and, where that is cheap to check, with its content; `fetch` always checks the content."""

    def publish(self, manifest: Manifest) -> None: ...

    def manifest(self, attempt: str) -> Manifest | None: ...

    def keep_log(self, attempt: str, path: Path) -> None:
        """Keeps what an attempt printed, for when the place where it ran is gone."""

    def kept_log(self, attempt: str, offset: int, most: int) -> bytes | None:
        """At most `most` bytes of it, from a byte offset on; None if none is kept."""

    def progress(self, attempt: str) -> Progress | None:
        """How far an attempt is that works; None where it hasn't told, or has ended."""
