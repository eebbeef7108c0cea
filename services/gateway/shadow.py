"""Shadow traffic: the candidate version answers the stable version's requests, unseen by users.

Each batch that the stable version answered goes through a short queue to a few threads. When the threads are busy, requests are dropped and
counted, so a slow or hanging candidate delays no answer. After a comparison a thread rests three times as long as it took, so that the
candidate's work neither slows answers nor distorts their times. Both versions do the same work with the same function, so their times are
comparable. The candidate's items are compared and discarded; totals go to the store every half second, under this process's own id.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from services.gateway.candidates import RankingRequest
from services.gateway.loaded_version import LoadedVersion
from services.gateway.model_inputs import ModelInputs
from services.gateway.scoring import RankedRequests, Scoring, ShownItems
from services.gateway.stage_timer import StageTimer
from shared.domain.traffic import ShadowCounts, bucket_of
from shared.ports import Scorer, ShadowTotals
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

WORKERS = 2
WAITING = 32
REST = 3.0
"""Rest after a comparison, as a multiple of its duration."""
LONGEST_REST = 1.0
EVERY = timedelta(milliseconds=500)

Key = tuple[str, int]
"""Recommender and generation of its route."""


@dataclass(frozen=True, eq=False)
class MirroredBatch:
    """Requests that were answered together."""

    requests: Sequence[RankingRequest]
    generation: int
    unit: LoadedVersion
    """The candidate version."""
    stable: RankedRequests
    """The answers that went out."""

    @property
    def key(self) -> Key:
        return self.requests[0].recommender, self.generation

    @property
    def comparable(self) -> Sequence[int]:
        """Positions of requests that the stable version scored and the candidate can score."""
        pairs = enumerate(zip(self.requests, self.stable.shown, strict=True))
        return [
            n for n, (request, shown) in pairs if shown.fallback is None and self.unit.scores(request.user, request.newest_items(self.unit))
        ]


class Shadow:
    def __init__(
        self, server: Scorer, feeding: ModelInputs, mirrors: ShadowTotals, id: str, workers: int = WORKERS, waiting: int = WAITING
    ) -> None:
        self._scoring = Scoring(server, feeding, explores=False, level=logging.DEBUG)
        self._mirrors = mirrors
        self._id = id
        self._workers = workers
        self._queue: queue.Queue[MirroredBatch] = queue.Queue(waiting)
        self._totals: dict[Key, ShadowCounts] = {}
        self._reported: dict[Key, ShadowCounts] = {}
        self._told_at: datetime | None = None
        self._started = False
        self._outages = Outages(log)
        self._lock = threading.Lock()

    def mirror(self, mirrored: MirroredBatch) -> None:
        """Queues the requests; returns at once and never raises."""
        if not mirrored.comparable:
            return
        self._start()
        try:
            self._queue.put_nowait(mirrored)
        except queue.Full:
            self._add(mirrored, ShadowCounts(dropped=len(mirrored.comparable)))

    def report(self, now: datetime) -> None:
        """Writes changed totals, at most every half second. Never raises: failed writes are repeated at the next call."""
        if self._told_at is None or now - self._told_at >= EVERY:
            self._tell()
            self._told_at = now

    def close(self) -> None:
        """Writes the last totals; drops waiting comparisons."""
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            new = {key: mirror for key, mirror in self._totals.items() if self._reported.get(key) != mirror}
        try:
            for (recommender, generation), mirror in new.items():
                self._mirrors.add(recommender, generation, self._id, mirror)
                self._reported[recommender, generation] = mirror
            self._outages.succeed("", "shadow totals: recovered gateway=%s", self._id)
        except Exception as error:
            self._outages.fail("", "shadow totals: writing failed, they are written later gateway=%s error=%s", self._id, error)

    def _start(self) -> None:
        """Starts the daemon threads at the first shadow request."""
        if self._started:
            return
        with self._lock:
            if not self._started:
                for n in range(self._workers):
                    threading.Thread(target=self._work, name=f"shadow-{n}", daemon=True).start()
                self._started = True

    def _work(self) -> None:
        while True:
            mirrored = self._queue.get()
            began = time.monotonic()
            try:
                self._add(mirrored, self._compared(mirrored))
            except Exception:
                log.exception("shadow: comparison failed recommender=%s", mirrored.key[0])
                self._add(mirrored, ShadowCounts(len(mirrored.comparable), len(mirrored.comparable)))
            time.sleep(min(LONGEST_REST, REST * (time.monotonic() - began)))

    def _compared(self, mirrored: MirroredBatch) -> ShadowCounts:
        """Compares one batch. A batch has one duration, so it counts as one observation of latency."""
        places = mirrored.comparable
        ranked = self._scoring.show(mirrored.requests, mirrored.unit, StageTimer())
        if self._scoring.server_away:
            return ShadowCounts(dropped=len(places))
        pairs = [(mirrored.stable.shown[place], ranked.shown[place]) for place in places]
        errors = sum(candidate.fallback is not None for _, candidate in pairs)
        overlap = sum(_overlap(stable, candidate) for stable, candidate in pairs if candidate.fallback is None)
        stable, candidate = ({bucket_of(seconds): 1} for seconds in (mirrored.stable.seconds, ranked.seconds))
        return ShadowCounts(len(pairs), errors, stable, candidate if errors < len(pairs) else {}, overlap)

    def _add(self, mirrored: MirroredBatch, delta: ShadowCounts) -> None:
        with self._lock:
            self._totals[mirrored.key] = self._totals.get(mirrored.key, ShadowCounts()).plus(delta)
        for outcome, count in (("compared", delta.compared - delta.errors), ("error", delta.errors), ("dropped", delta.dropped)):
            metrics.SHADOWS.labels(mirrored.key[0], outcome).inc(count)


def _overlap(stable: ShownItems, candidate: ShownItems) -> float:
    """Returns the share of the shown items that the candidate shows too; 1 for an empty answer."""
    items = {item for item, _ in stable.items}
    return len(items & {item for item, _ in candidate.items}) / len(items) if items else 1.0
