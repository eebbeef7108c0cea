"""Probes whether versions really answer. Triton still reports a version as ready when its backend process has died."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from services.triton.client import Client
from services.triton.repository import PlacedUnit
from services.triton.tensors import dummy, tensors
from shared.domain.errors import Unavailable
from shared.serving.signature import Signature

Key = tuple[str, int]
_ROWS = 2


def probe(client: Client, placed: PlacedUnit, model: str, timeout: float) -> None:
    """Makes one real inference; raises Unavailable unless it returns one finite float32 score per row."""
    probe_version(client, model, placed.number, placed.signature, timeout)


def probe_version(client: Client, model: str, number: int, signature: Signature, timeout: float) -> None:
    inputs = tensors(signature, dummy(signature, _ROWS))
    scores = client.infer(model, number, inputs, signature.output, timeout)
    if scores.shape != (_ROWS,):
        raise Unavailable(f"output '{signature.output}' has the shape {scores.shape} for {_ROWS} rows, expected ({_ROWS},)")
    if scores.dtype != np.float32:
        raise Unavailable(f"output '{signature.output}' has the type {scores.dtype}, expected float32")
    if not np.isfinite(scores).all():
        bad = scores[~np.isfinite(scores)][0]
        raise Unavailable(f"output '{signature.output}' is {bad} for a row of zeros and empty texts; scores must be finite numbers")


class ProbeSchedule:
    """Schedules probes: at once after a failed request, and of all versions at intervals. Limits how often a version is healed."""

    def __init__(self, probe_every: float, heal_every: float, now: float) -> None:
        self._probe_every, self._heal_every = probe_every, heal_every
        self._probed = now
        self._healed: dict[Key, float] = {}
        self._suspects: set[Key] = set()

    def add(self, key: Key) -> None:
        """Thread-safe without a lock."""
        self._suspects.add(key)

    def clear(self) -> None:
        self._suspects.clear()

    def due(self, serving: Iterable[Key], now: float) -> set[Key]:
        due_keys = set(serving)
        if now - self._probed >= self._probe_every:
            self._probed = now
        else:
            due_keys &= self._suspects
        self._suspects -= due_keys
        return due_keys

    def waiting(self, now: float) -> bool:
        """Whether a probe is due."""
        return bool(self._suspects) or now - self._probed >= self._probe_every

    def may_heal(self, key: Key, now: float) -> bool:
        """Limits healing to once per `heal_every`; until then the version stays suspect."""
        if now - self._healed.get(key, now - self._heal_every) < self._heal_every:
            self.add(key)
            return False
        self._healed[key] = now
        return True
