"""Faulty candidates (slow, failing, without numbers): after how many analyses every user is back on the stable version.

    python -m benchmarks.rollout_faults [--times 50]

Everything is the platform's own (gateway, event log on SQLite, reconciler, decisions, a real Triton), but for two things: a scorer in
between that spoils the candidate's answers, and the clock, which jumps from one analysis to the next. Between two of them as many
requests are answered as the candidate's first step would see at 200 requests/s. A candidate that nothing is wrong with is rolled
out as often: it must not go back.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Missed, Outcome, Row, benchmark, say, scratch
from benchmarks.rollout_world import NAME, World
from services.control.placement import Placement, warmth
from services.control.reconcile import Reconciler
from services.control.rollouts import Rollouts, Sources
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.gateway import Gateway
from services.gateway.gateway import Stores
from services.index.opening import OpenIndexes
from services.store.catalogue import SqlCatalogue
from services.store.installation import id_hash
from services.store.shadow_totals import SqlShadowTotals
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.domain.errors import Unavailable
from shared.domain.rollout import MACHINE, RolloutStatus
from shared.domain.route import Route
from shared.domain.traffic import Traffic
from shared.ports import Scorer

EVERY = timedelta(seconds=30)
ANSWERS = 300
"""Of the candidate, between two analyses: 5% of 200 requests a second for 30 s."""
ALLOWED = 2
_LOOKS = 4
"""After so many analyses a faulty one is given up; a good one is looked at as often as a faulty one may be."""
_USERS = 20_000
_WEIGHT = 0.5
_STABLE, _CANDIDATE = 1, 2

Scores = np.ndarray[Any, Any]
Spoil = Callable[[Callable[[], Scores], random.Random], Scores]


def slow(score: Callable[[], Scores], chance: random.Random) -> Scores:
    """Five times as long as it would have taken."""
    began = time.perf_counter()
    scores = score()
    time.sleep(4 * (time.perf_counter() - began))
    return scores


def errs(score: Callable[[], Scores], chance: random.Random) -> Scores:
    if chance.random() < 0.05:
        raise Unavailable("an injected error")
    return score()


def no_numbers(score: Callable[[], Scores], chance: random.Random) -> Scores:
    return np.full_like(score(), np.nan)


FAULTS: Mapping[str, Spoil | None] = {"five times the latency": slow, "5% errors": errs, "no numbers": no_numbers, "nothing wrong": None}


class Spoiled:
    """Implements Scorer: the real one, with the candidate's answers spoilt."""

    def __init__(self, scorer: Scorer, seed: int) -> None:
        self._scorer = scorer
        self._chance = random.Random(seed)  # noqa: S311
        self.spoil: Spoil | None = None

    def score(self, recommender: str, number: int, feed: Mapping[str, Scores], patience: float | None = None) -> Scores:
        def real() -> Scores:
            return self._scorer.score(recommender, number, feed)

        return real() if self.spoil is None or number != _CANDIDATE else self.spoil(real, self._chance)


class Clock:
    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(microseconds=100)
        return self._now

    def jump(self, span: timedelta) -> None:
        self._now += span


class Looks(SqlKpis):
    """Counts the analyses: each asks once what the answers were like."""

    count = 0

    def traffic(self, recommender: str, generation: int, now: datetime) -> Mapping[str, Traffic]:
        self.count += 1
        return super().traffic(recommender, generation, now)


class Stand:
    """A platform without its loops: who drives it says when a pass is due."""

    def __init__(self, home: Path, undo: ExitStack, seed: int) -> None:
        analysis = {"attribution": "1s", "window": "1s", "min_users": 30, "every": f"{EVERY.seconds}s"}
        self.world = World(home, _USERS, {"steps": [_WEIGHT], "analysis": analysis})
        undo.callback(self.world.close)
        self.world.version()
        self.world.version()
        triton = EmbeddedTriton(home / "triton")
        undo.callback(triton.stop)
        triton.start()
        server = TritonServer(triton, ModelRepository(triton.home, self.world.artifacts))
        undo.callback(server.close)
        world, engine, self.clock = self.world, self.world.engine, Clock()
        self.scorer, self.looks, mirrors = Spoiled(server, seed), Looks(engine), SqlShadowTotals(engine)
        events, catalogue = SqlEventLog(engine), SqlCatalogue(engine)
        stores = Stores(
            world.routes, world.registry, world.artifacts, world.recommenders, events, mirrors, catalogue, OpenIndexes(), id_hash(engine)
        )
        self.gateway = Gateway(stores, self.scorer, self.clock, "bench")
        undo.callback(self.gateway.close)
        self._placement = Placement(world.routes, world.rollouts, world.registry, server, self.clock, warmth(world.recommenders))
        sources = Sources(self.looks, mirrors)
        kind = Rollouts(world.rollouts, world.routes, world.registry, server, sources, self._placement, self.clock)
        self._reconciler = Reconciler(kind, self.clock)
        self._chance = random.Random(seed)  # noqa: S311
        world.routes.put(NAME, Route(_STABLE), self.clock.now(), "bench", "a benchmark")

    def roll_out(self, id: str, spoil: Spoil | None) -> tuple[RolloutStatus, int, float]:
        """Until it has ended, or after too many analyses: its status, the number of analyses, its seconds."""
        began, self.looks.count, self.scorer.spoil = time.monotonic(), 0, spoil
        self.world.start(_CANDIDATE, id, self.clock.now())
        while True:
            status = self.world.rollouts.get(id).status
            if MACHINE.terminal(status.state) or status.state == "paused" or self.looks.count >= (_LOOKS if spoil else ALLOWED):
                return status, self.looks.count, time.monotonic() - began
            if status.state == "canary" and status.step_since is not None:
                self._users_come()
                self.clock.jump(EVERY)
            else:
                self.clock.jump(timedelta(milliseconds=300))
            self.gateway.refresh()
            self._reconciler.tick()
            self._placement.tick()

    def abort(self, id: str) -> None:
        """Ends a rollout that is still under way."""
        self.world.ask(id, "abort", self.clock.now())
        while not MACHINE.terminal(self.world.rollouts.get(id).status.state):
            self.clock.jump(timedelta(milliseconds=300))
            self._reconciler.tick()

    def _users_come(self) -> None:
        for _ in range(round(ANSWERS / _WEIGHT)):
            self.gateway.recommend(NAME, self._chance.randrange(_USERS), 5)


def faults(home: Path, times: int) -> Iterator[Outcome]:
    """Each faulty candidate must go back within two analyses, and no other one."""
    logging.getLogger("services").setLevel(logging.ERROR)
    with ExitStack() as undo:
        stand = Stand(home, undo, seed=7)
        for number, (fault, spoil) in enumerate(FAULTS.items()):
            ends: Counter[str] = Counter()
            looks: list[int] = []
            seconds: list[float] = []
            for id in (f"r-{number}-{at:03}" for at in range(times)):
                status, count, took = stand.roll_out(id, spoil)
                ends[status.state] += 1
                looks.append(count)
                seconds.append(took)
                if not MACHINE.terminal(status.state):
                    stand.abort(id)
            back = ends["rolled_back"]
            say(f"{fault}: {back} of {times} rolled back; analyses {dict(sorted(Counter(looks).items()))}; last: {status.reason[:160]}")
            yield Row(fault, "eyas", "rolled back", f"of {times}", [back])
            yield Row(fault, "eyas", "analyses until then" if spoil else "analyses", "", looks)
            yield Row(fault, "eyas", "a rollout took", "s", seconds)
            if back != (times if spoil else 0) or (spoil and max(looks) > ALLOWED):
                yield Missed(f"{fault}: {'all are' if spoil else 'none is'} rolled back within {ALLOWED} analyses")


@benchmark("rollout_faults")
def rollout_faults(times: int = 50) -> Iterator[Outcome]:
    with scratch() as folder:
        yield from faults(folder / "home", times)


if __name__ == "__main__":
    rollout_faults()
