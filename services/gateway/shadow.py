"""A candidate that is asked beside the stable version and that nobody sees.

What the stable version has answered is mirrored through a short queue to a few threads of its own: when those are busy, requests
are dropped and counted, so a candidate that is slow, or hangs, costs the answers nothing. The candidate's items are compared and
thrown away; totals go to the store with the heartbeat, under the name of this life of the gateway.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from services.gateway.candidates import Wish, candidates
from services.gateway.feeding import Feeding
from services.gateway.laps import Laps
from services.gateway.scoring import Shown, scored, shown
from services.gateway.units import Unit
from shared.domain.errors import EyasError
from shared.domain.traffic import Mirror, bucket_of
from shared.ports import Mirrors, Scorer
from shared.telemetry import metrics

log = logging.getLogger(__name__)

WORKERS = 2
WAITING = 32
EVERY = timedelta(milliseconds=500)

Key = tuple[str, int]
"""A recommender, and the generation of its route."""


@dataclass(frozen=True, eq=False)
class Mirrored:
    wish: Wish
    generation: int
    unit: Unit
    """The candidate's."""
    stable: Shown
    """What went out."""


class Shadow:
    def __init__(self, server: Scorer, feeding: Feeding, mirrors: Mirrors, id: str, workers: int = WORKERS, waiting: int = WAITING) -> None:
        self._server = server
        self._feeding = feeding
        self._mirrors = mirrors
        self._id = id
        self._workers = workers
        self._queue: queue.Queue[Mirrored] = queue.Queue(waiting)
        self._totals: dict[Key, Mirror] = {}
        self._told: dict[Key, Mirror] = {}
        self._told_at: datetime | None = None
        self._started = False
        self._faulty = False
        self._lock = threading.Lock()

    def mirror(self, one: Mirrored) -> None:
        """Returns at once, and never raises. A user whom the candidate doesn't know is nobody to compare."""
        if one.stable.fallback is not None or not one.unit.scores(one.wish.user, one.wish.items):
            return
        self._start()
        try:
            self._queue.put_nowait(one)
        except queue.Full:
            self._add(one, Mirror(dropped=1), "dropped")

    def report(self, now: datetime) -> None:
        """Tells what is new, as often as a heartbeat. Never raises: what couldn't be told is told next time."""
        if self._told_at is None or now - self._told_at >= EVERY:
            self._tell()
            self._told_at = now

    def close(self) -> None:
        """Tells the last of it; what is still asked is given up."""
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            new = {key: mirror for key, mirror in self._totals.items() if self._told.get(key) != mirror}
        try:
            for (recommender, generation), mirror in new.items():
                self._mirrors.add(recommender, generation, self._id, mirror)
                self._told[recommender, generation] = mirror
            self._faulty = False
        except Exception as error:
            if not self._faulty:
                log.error("gateway %s: what its shadow saw can't be told, and is kept: %s", self._id, error)
            self._faulty = True

    def _start(self) -> None:
        """Threads only where there is a shadow; they end with the process."""
        if self._started:
            return
        with self._lock:
            if not self._started:
                for n in range(self._workers):
                    threading.Thread(target=self._work, name=f"shadow-{n}", daemon=True).start()
                self._started = True

    def _work(self) -> None:
        while True:
            one = self._queue.get()
            try:
                self._add(one, *self._compared(one))
            except Exception:
                log.exception("the shadow of %s", one.wish.recommender)

    def _compared(self, one: Mirrored) -> tuple[Mirror, str]:
        stable = {bucket_of(one.stable.seconds or 0.0): 1}
        began = time.perf_counter()
        try:
            (pick,) = candidates([one.wish], one.unit, Laps())
            (found,) = scored(self._server, self._feeding, [pick], one.unit)
            if isinstance(found.scores, Exception):
                raise found.scores
            items = shown(pick, found.scores, one.unit, explores=False).items
        except Exception as error:
            log.log(
                logging.DEBUG if isinstance(error, EyasError) else logging.WARNING,
                "%s version %d as a shadow: %s: %s",
                one.wish.recommender,
                one.unit.version,
                type(error).__name__,
                error,
            )
            return Mirror(1, 1, stable), "error"
        candidate = {bucket_of(time.perf_counter() - began): 1}
        return Mirror(1, 0, stable, candidate, _overlap(one.stable, items)), "compared"

    def _add(self, one: Mirrored, seen: Mirror, outcome: str) -> None:
        key = (one.wish.recommender, one.generation)
        with self._lock:
            self._totals[key] = self._totals.get(key, Mirror()).plus(seen)
        metrics.SHADOWS.labels(one.wish.recommender, outcome).inc()


def _overlap(stable: Shown, items: tuple[tuple[int, float | None], ...]) -> float:
    """The share of what was shown that the candidate would have shown too; all of nothing."""
    shown = {item for item, _ in stable.items}
    return len(shown & {item for item, _ in items}) / len(shown) if shown else 1.0
