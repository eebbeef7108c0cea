"""Export of the audit log as JSON lines, to a file or to an HTTP collector: each entry at least once, in order."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import httpx

from shared.domain.errors import Unavailable
from shared.ports import Audited, AuditOutbox, Clock
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

OUTCOME_WAIT = timedelta(minutes=1)
"""An entry waits that long for its outcome. Later it is exported without one, and once more when the outcome is there."""
_BATCH = 500
_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds between tries after a failure."""
_PATIENCE = 10.0


class AuditExporter:
    """Only one process at a time may run `step`. After a failure the batch is halved, since one entry may be too much for the collector."""

    def __init__(self, outbox: AuditOutbox, send: Callable[[bytes], None], clock: Clock, installation: str) -> None:
        """`send` delivers lines durably, or raises Unavailable."""
        self._outbox = outbox
        self._send = send
        self._clock = clock
        self._installation = installation
        self._batch = _BATCH
        self._pause = 0.0
        self._retry_at: datetime | None = None
        self._outages = Outages(log)

    def step(self) -> None:
        if self._retry_at is None or self._clock.now() >= self._retry_at:
            self._export()

    def measure(self) -> None:
        """Exports the metrics, in every control plane: they also rise if none exports."""
        waiting, oldest = self._outbox.backlog()
        metrics.AUDIT_WAITING.set(waiting)
        metrics.AUDIT_AGE.set(0.0 if oldest is None else (self._clock.now() - oldest).total_seconds())

    def _export(self) -> None:
        while entries := self._ready():
            try:
                self._send(b"".join(self._line(entry) for entry in entries))
            except Unavailable as error:
                self._pause = min(max(2 * self._pause, _SHORTEST), _LONGEST)
                self._retry_at = self._clock.now() + timedelta(seconds=self._pause)
                self._batch = max(1, self._batch // 2)
                self._outages.fail("", "audit export: failed error=%s", str(error))
                return
            self._outbox.mark_exported(entries)
            self._outages.succeed("", "audit export: recovered")
            self._pause, self._retry_at, self._batch = 0.0, None, min(_BATCH, 2 * self._batch)

    def _ready(self) -> Sequence[Audited]:
        """Returns the next entries, up to one whose request may still be running."""
        entries: list[Audited] = []
        now = self._clock.now()
        for entry in self._outbox.unexported(self._batch):
            if entry.status is None and now - entry.at < OUTCOME_WAIT:
                break
            entries.append(entry)
        return entries

    def _line(self, entry: Audited) -> bytes:
        """The id has the entry's time, because numbers are used again after a restore."""
        fields = (
            {"id": f"{self._installation}-{entry.seq}-{round(entry.at.timestamp() * 1e6)}"} | asdict(entry) | {"at": entry.at.isoformat()}
        )
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


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
    """Makes the name of a new file durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
