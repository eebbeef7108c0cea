"""Chooses the replica that scores: the best one that has the version, and a second one if the first is lost.

Scoring changes nothing, so a retry is safe; there is one retry, within the call's own time. A fault of the model (Unavailable but not Lost)
is final: another replica would compute the same.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from services.triton.client import ServerLost
from services.triton.probe import Key
from services.triton.tensors import Feed
from shared.domain.errors import ServerAway

_LEAST = 0.05
AWAY_PATIENCE = 0.25
"""Seconds that a replica has to answer after a request to it was lost."""


class VersionState(IntEnum):
    """State of a version on a replica, best first."""

    GOOD = 0
    DOUBTED = 1
    """A request was lost; other replicas come first until a real inference succeeds."""
    UNSEEN = 2
    """Missing at the last look; it may have been loaded since."""
    AWAY = 3
    """The replica does not answer, or is restoring its versions."""


class Replica(Protocol):
    def standing(self, key: Key) -> VersionState | None:
        """Returns None if the replica does not have the version."""

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        """Raises ServerLost if another replica may answer."""

    def away(self, recommender: str) -> bool:
        """Whether the replica can answer no version of the recommender: unreachable, or restoring its versions."""


class ReplicaSelector:
    """Thread-safe."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._turn = itertools.count()

    def score(self, replicas: Sequence[Replica], key: Key, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        try:
            return self._score(replicas, key, feed, patience)
        except ServerLost as error:
            if all(replica.away(key[0]) for replica in replicas):
                raise ServerAway(str(error)) from None
            raise

    def _score(self, replicas: Sequence[Replica], key: Key, feed: Feed, patience: float | None) -> np.ndarray[Any, Any]:
        able = self._able(replicas, key)
        if not able:
            raise ServerLost(f"{key[0]} version {key[1]} is not on the model server")
        timeout = self._timeout if patience is None else patience
        until = time.monotonic() + timeout
        (_, first), *others = able
        if not others:
            return first.ask(key, feed, timeout)
        standing, second = others[0]
        try:
            # A silent replica must leave time for the second one, if that one is good.
            return first.ask(key, feed, timeout / 2 if standing is VersionState.GOOD else timeout)
        except ServerLost:
            left = until - time.monotonic()
            if left < _LEAST:
                raise
            return second.ask(key, feed, left)

    def _able(self, replicas: Sequence[Replica], key: Key) -> list[tuple[VersionState, Replica]]:
        """Returns the replicas that have the version, best first; equal ones take turns."""
        turn = next(self._turn) % max(len(replicas), 1)
        turned = [*replicas[turn:], *replicas[:turn]]
        candidates = [(standing, replica) for replica in turned if (standing := replica.standing(key)) is not None]
        return sorted(candidates, key=lambda candidate: candidate[0])
