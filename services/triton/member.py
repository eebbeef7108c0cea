"""One replica of a fleet as its owner sees it: looked after on a thread of its own, so one that hangs holds up no other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np

from services.triton.choice import AWAY_PATIENCE, Standing
from services.triton.model_server import TritonServer
from services.triton.probe import Key
from services.triton.tensors import Feed
from shared.domain.errors import EyasError
from shared.ports import ServedUnit, ServerReplica

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_EVERY = 1.0


class Member:
    def __init__(self, name: str, server: TritonServer) -> None:
        self.name = name
        self.server = server
        self.up: bool | None = None
        """Whether it answered when it was last looked at; None before the first look."""
        self.lacking: frozenset[Key] = frozenset()
        """What others have and it hasn't."""
        self.ready = False
        self.unready_since = time.monotonic()
        self._trouble: str | None = None
        self._looked = 0.0
        self._looking: Future[bool] | None = None
        self._retried = time.monotonic()
        self._hand = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"triton-{name}")

    @property
    def at_hand(self) -> bool:
        """Whether it would take a change now."""
        return self.up is None or (self.up and not self.server.owing)

    def standing(self, key: Key) -> Standing | None:
        if key not in self.server.placed:
            return None
        if self.up is False or (self.server.owing and not self.ready):
            return Standing.AWAY
        return Standing.DOUBTED if self.server.doubted(key) else Standing.GOOD

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        return self.server.ask(key, feed, timeout)

    def away(self, recommender: str) -> bool:
        return self.up is False or self.server.lacks(recommender) or not self.server.reachable(AWAY_PATIENCE)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """In order: what was submitted before is done before."""
        return self._hand.submit(work)

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> Future[dict[int, str]]:
        return self.submit(lambda: dict(self.server.place(recommender, units)))

    def look(self) -> Future[bool]:
        """Whether it began anew. A look that isn't over yet is the one that counts."""
        if self._looking is None or self._looking.done():
            self._looking = self.submit(self._look)
        return self._looking

    def judge(self, held: frozenset[Key], retry_every: float) -> None:
        """Ready: it answers, was given all that it should have, and has all that any other has of it."""
        self.lacking = held - self.server.placed
        ready = bool(self.up) and not self.server.owing and not self.lacking
        now = time.monotonic()
        if self.lacking and self.up and not self.server.owing and now - self._retried >= retry_every:
            self._retried = now
            self.submit(self.server.owe)
        if ready != self.ready:
            log.info("Triton %s: %s", self.name, "ready" if ready else f"not ready: {self.fault()}")
            self.unready_since = now
        self.ready = ready

    def counts(self, patience: float) -> bool:
        """Whether it is waited for."""
        return self.ready or time.monotonic() - self.unready_since < patience

    def fault(self) -> str | None:
        """Why it isn't ready."""
        if self.up is False or self._trouble is not None:
            return self._trouble or "Triton doesn't answer"
        if self.server.owing:
            return "its versions are being loaded"
        return f"it lacks {', '.join(f'{name} {number}' for name, number in sorted(self.lacking))}" if self.lacking else None

    def said(self) -> ServerReplica:
        state: Literal["ready", "loading", "down"] = "ready" if self.ready else "down" if self.up is False else "loading"
        return ServerReplica(self.name, state, tuple(sorted(self.server.placed)) if self.up else (), self.fault())

    def close(self) -> None:
        self.server.close()
        self._hand.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> bool:
        anew = False
        self._trouble = None
        try:
            anew = self.server.ensure_running()
        except (EyasError, OSError) as error:  # of one recommender perhaps: the others may be well
            self._trouble = str(error)
        now = time.monotonic()
        if anew or not self.up or self._trouble is not None or now - self._looked >= LOOK_EVERY:
            self._looked = now
            self.up = self.server.reachable()
        return anew
