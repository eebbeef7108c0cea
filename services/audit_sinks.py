"""Destinations of the exported audit log: a file, or an HTTP collector."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import httpx

from shared.domain.errors import Unavailable

_PATIENCE = 10.0


class AuditFile:
    """Appends lines to a file, which is opened for each batch: a rotated file is continued in a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, lines: bytes) -> None:
        try:
            is_new = not self._path.exists()
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                self._append(file, lines)
            if is_new:
                _synchronise(self._path.parent)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror or error}") from None

    def _append(self, file: BinaryIO, lines: bytes) -> None:
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            lines = b"\n" + lines  # a process died while it wrote
        try:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), size)  # the disk is full: no part of a line stays
            raise


class AuditCollector:
    """Posts lines to an HTTP collector, which acknowledges them with a status of 200 to 299."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {"Content-Type": "application/x-ndjson"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._url = url
        self._client = httpx.Client(headers=headers, timeout=_PATIENCE, trust_env=False)

    def __call__(self, lines: bytes) -> None:
        try:
            answer = self._client.post(self._url, content=lines)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise Unavailable(f"the collector does not answer: {type(error).__name__}") from None
        if not answer.is_success:
            raise Unavailable(f"the collector answers with status {answer.status_code}")

    def close(self) -> None:
        self._client.close()


def _synchronise(folder: Path) -> None:
    """Writes the folder to the disk, so that a new file in it still exists after a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
