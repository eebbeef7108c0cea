"""One replica of a fleet, with its own threads: a hanging replica delays no other.

One thread makes all changes in order. Another thread checks whether the server answers; after `hangs` seconds of silence the
server is killed, and its host starts it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np

from services.triton.model_server import TritonServer
from services.triton.probe import Key
from services.triton.replica_selection import AWAY_PATIENCE, VersionState
from services.triton.tensors import Feed
from services.triton.watchdog import HANGS, Watchdog
from shared.domain.errors import EyasError
from shared.ports import ServedUnit, ServerReplica

log = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_EVERY = 1.0


class FleetReplica:
    def __init__(self, name: str, server: TritonServer, hangs: float = HANGS) -> None:
        self.name = name
        self.server = server
        self.up: bool | None = None
        """Whether the server answered the last check; None before the first one."""
        self.lacking: frozenset[Key] = frozenset()
        """Versions that other replicas have and this one lacks."""
        self.ready = False
        self.unready_since = time.monotonic()
        self._trouble: str | None = None
        self._looking: Future[bool] | None = None
        self._reported: Future[bool] | None = None
        self._changed = False
        """Whether versions were left to the next look."""
        self._checked_at = 0.0
        self._check: Future[None] | None = None
        self._life = 0
        self._watchdog = Watchdog(server.reachable, lambda: server.kill(self._life), hangs)
        self._waiting: dict[str, tuple[tuple[ServedUnit, ...], Future[None]]] = {}
        self._placing: dict[str, tuple[tuple[ServedUnit, ...], Future[dict[int, str]]]] = {}
        self._lacking_since = time.monotonic()
        """Since when versions are lacking, or when their placement was last retried."""
        self._hand = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"triton-{name}")
        self._watcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"health-{name}")

    @property
    def at_hand(self) -> bool:
        """Whether the replica can take a change: it answers, and its versions are restored."""
        return self.up is None or (self.up and not self.server.returning)

    def standing(self, key: Key) -> VersionState | None:
        if key not in self.server.placed:
            return None
        if self.up is False or (self.server.owing and not self.ready):
            return VersionState.AWAY
        return VersionState.DOUBTED if self.server.doubted(key) else VersionState.GOOD

    def ask(self, key: Key, feed: Feed, timeout: float) -> np.ndarray[Any, Any]:
        return self.server.ask(key, feed, timeout)

    def away(self, recommender: str) -> bool:
        return self.up is False or self.server.lacks(recommender) or not self.server.reachable(AWAY_PATIENCE)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Runs work after all work submitted before."""
        return self._hand.submit(work)

    def place(self, recommender: str, units: Sequence[ServedUnit]) -> tuple[Future[dict[int, str]], bool]:
        """Returns the outcome, and whether this call started the placement: equal versions that are being placed are not placed again."""
        wanted = tuple(units)
        begun = self._placing.get(recommender)
        if begun is not None and begun[0] == wanted and not begun[1].done():
            return begun[1], False
        future = self.submit(lambda: dict(self.server.place(recommender, wanted)))
        self._placing[recommender] = wanted, future
        return future, True

    def want(self, recommender: str, units: Sequence[ServedUnit]) -> None:
        """Leaves the versions to a later look; queues equal versions once."""
        wanted = tuple(units)
        waiting = self._waiting.get(recommender)
        if waiting is None or waiting[0] != wanted or waiting[1].done():
            self._changed = True
            self._waiting[recommender] = wanted, self.submit(lambda: self.server.want(recommender, wanted))

    def look(self) -> Future[bool] | None:
        """Starts a look, whose result is whether it restarted the server. Returns None if nothing is to do or a look is under way."""
        self._ask()
        if self._looking is not None and not self._looking.done():
            return None
        if self.up and self._trouble is None and not self._changed and self.server.settled:
            return None
        self._changed = False
        self._looking = self.submit(self._look)
        return self._looking

    def began_anew(self) -> bool:
        """Whether the last look restarted the server; True once per look."""
        look = self._looking
        if look is None or look is self._reported or not look.done():
            return False
        self._reported = look
        return look.result()

    def judge(self, available: frozenset[Key], retry_every: float) -> None:
        """Sets `ready`: the server answers, has all wanted versions, and lacks none that another replica has."""
        self.lacking = available - self.server.placed
        ready = bool(self.up) and not self.server.owing and not self.lacking
        now = time.monotonic()
        if not self.lacking:
            self._lacking_since = now
        elif self.up and not self.server.owing and now - self._lacking_since >= retry_every:
            self._lacking_since = now
            self._changed = True
            recommenders = {recommender for recommender, _ in self.lacking}
            self.submit(lambda: self.server.retry(recommenders))
        if ready != self.ready:
            log.info("replica: readiness changed replica=%s ready=%s reason=%s", self.name, ready, "none" if ready else self.fault())
            self.unready_since = now
        self.ready = ready

    def counts(self, patience: float) -> bool:
        """Whether the fleet waits for the replica's answers."""
        return self.ready or time.monotonic() - self.unready_since < patience

    def fault(self) -> str | None:
        """Returns why the replica is not ready; None if it is."""
        if self.up is False or self._trouble is not None:
            return self._trouble or "Triton does not answer"
        if self.server.owing:
            return "versions are still loading"
        return f"missing versions: {', '.join(f'{name} {number}' for name, number in sorted(self.lacking))}" if self.lacking else None

    def status(self) -> ServerReplica:
        state: Literal["ready", "loading", "down"] = "ready" if self.ready else "down" if self.up is False else "loading"
        return ServerReplica(self.name, state, tuple(sorted(self.server.placed)) if self.up else (), self.fault())

    def close(self) -> None:
        self.server.close()
        self._hand.shutdown(wait=False, cancel_futures=True)
        self._watcher.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> bool:
        anew = False
        self._trouble = None
        try:
            anew = self.server.ensure_running()
        except (EyasError, OSError) as error:  # perhaps of one recommender only
            self._trouble = str(error)
        if anew or not self.up or self._trouble is not None:
            self.up = self.server.reachable()
        return anew

    def _ask(self) -> None:
        """Checks every LOOK_EVERY seconds whether the server answers."""
        now = time.monotonic()
        if now - self._checked_at >= LOOK_EVERY and (self._check is None or self._check.done()):
            self._checked_at = now
            self._check = self._watcher.submit(self._watch)

    def _watch(self) -> None:
        self._life = self.server.generation
        if not self._watchdog.ask():
            self.up = False
        if self._watchdog.ended:
            log.error("replica: no answer, it is killed and restarted replica=%s", self.name)
