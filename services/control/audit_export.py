"""Export of the audit log as JSON lines: each entry at least once, in order."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

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


class AuditExporter:
    """Only one process at a time may run `step`. After a failure the batch is halved, because the collector may refuse large batches."""

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
        """Returns the next entries. Stops before an entry without an outcome whose request may still run."""
        entries: list[Audited] = []
        now = self._clock.now()
        for entry in self._outbox.unexported(self._batch):
            if entry.status is None and now - entry.at < OUTCOME_WAIT:
                break
            entries.append(entry)
        return entries

    def _line(self, entry: Audited) -> bytes:
        """The id has the entry's time, because numbers are used again after a restore."""
        id = f"{self._installation}-{entry.seq}-{round(entry.at.timestamp() * 1e6)}"
        fields = {"id": id} | asdict(entry) | {"at": entry.at.isoformat()}
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
