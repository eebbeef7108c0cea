"""Whom of several replicas to ask for scores: one that has the version and is well, and another one when that one is lost.

Scoring changes nothing, so asking twice is safe; it is done once, and inside the time that one call has. A fault of the model's own
(Unavailable that isn't Lost) is its answer: another replica would compute the same.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from services.triton.client import Lost
from services.triton.probe import Key
from services.triton.tensors import Feed
from shared.domain.errors import ServerAway

_LEAST = 0.05
AWAY_PATIENCE = 0.25
"""Seconds that a replica has to show that it is there, after a request to it was lost."""


class Standing(IntEnum):
    """What is known of a version on a replica that has it, best first."""

    GOOD = 0
    DOUBTED = 1
    """A request was lost there; until a real inference says otherwise, others are asked first."""
    UNSEEN = 2
    """It wasn't there when the replica was last looked at; it may have come since."""
    AWAY = 3
    """The replica doesn't answer, or is being given back its versions."""


class Replica(Protocol):
    def standing(self, key: Key) -> Standing | None:
        """None: the version isn't there."""

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        """Lost when another replica may answer."""

    def away(self, recommender: str) -> bool:
        """Whether no version of the recommender would be answered there: it is unreachable, or is being given back its versions."""


class Choice:
    """Safe to share between threads."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._turn = itertools.count()

    def score(self, replicas: Sequence[Replica], key: Key, feed: Feed, patience: float | None = None) -> np.ndarray[Any, Any]:
        try:
            return self._score(replicas, key, feed, patience)
        except Lost as error:
            if all(replica.away(key[0]) for replica in replicas):
                raise ServerAway(str(error)) from None
            raise

    def _score(self, replicas: Sequence[Replica], key: Key, feed: Feed, patience: float | None) -> np.ndarray[Any, Any]:
        able = self._able(replicas, key)
        if not able:
            raise Lost(f"{key[0]} version {key[1]} is not on the model server")
        timeout = self._timeout if patience is None else patience
        until = time.monotonic() + timeout
        (_, first), *others = able
        if not others:
            return first.ask(key, feed, timeout)
        standing, second = others[0]
        try:
            # One that says nothing must leave time for the other, if that is worth asking.
            return first.ask(key, feed, timeout / 2 if standing is Standing.GOOD else timeout)
        except Lost:
            left = until - time.monotonic()
            if left < _LEAST:
                raise
            return second.ask(key, feed, left)

    def _able(self, replicas: Sequence[Replica], key: Key) -> list[tuple[Standing, Replica]]:
        """Those that have the version, the best first; equals take turns."""
        turn = next(self._turn) % max(len(replicas), 1)
        turned = [*replicas[turn:], *replicas[:turn]]
        candidates = [(standing, replica) for replica in turned if (standing := replica.standing(key)) is not None]
        return sorted(candidates, key=lambda candidate: candidate[0])
