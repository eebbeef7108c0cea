"""The verdict of a shadow's guardrails: a candidate that equals the stable version must not fail, a slower one must.

    python -m benchmarks.shadows [--times 100] [--items 400 60000] [--requests 112] [--rate 40]

The same unit is registered as two versions of one recommender and served by a real Triton; the gateway runs in this process, with its own
stores on SQLite. Each trial puts a route with a shadow under a new generation, so its totals start at zero. Clients submit `--requests`
requests, then the default guardrails judge the totals; after an inconclusive verdict as many requests follow, up to `LOOKS` times. Half of
the trials are an open loop of `--rate` requests a second, the others a closed loop of `CLIENTS` connections. The totals of all trials of a
case are judged together as well: that finds a smaller unfairness than one trial can. Vectors are as wide as those of a text encoder: where
the catalogue has more items than are retrieved, retrieval takes as long as scoring. Slower candidates are the same version with a delay in
scoring, and the largest catalogue beside a stable version with the smallest; they have all looks to fail, as a shadow has all its time.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks import serve_world
from benchmarks.harness import Missed, Outcome, Row, benchmark, say, scratch, until
from benchmarks.rollout_world import World
from services.control.worker_loop import Loop
from services.eventlog.sql import SqlEventLog
from services.gateway import Answer, Gateway, Question, Stores
from services.index.opening import OpenIndexes
from services.store.catalogue import SqlCatalogue
from services.store.clock import DatabaseClock
from services.store.installation import id_hash
from services.store.shadow_totals import SqlShadowTotals
from services.triton.embedded import EmbeddedTriton
from services.triton.model_server import TritonServer
from services.triton.repository import ModelRepository
from shared.contracts.guardrails import Guardrails
from shared.contracts.rollouts import Shadow
from shared.contracts.stage import digest_of
from shared.domain.errors import Overloaded
from shared.domain.gate import Verdict
from shared.domain.guardrail import judge_mirror
from shared.domain.route import Route
from shared.domain.sequential_test import Judgement
from shared.domain.traffic import ShadowCounts, quantile
from shared.ports import Scorer, ServedUnit, Version
from shared.testing.records import LINEAGE

NAME = "films"
USERS, CANDIDATES = 20_000, 500
CLIENTS = 4
LOOKS = 20
"""Looks at the totals of one trial, at most."""
SLOW_TIMES = 5
DELAY = 0.05
"""Seconds that the scores of a delayed candidate come later."""
WIDER = 12
"""So many times as wide as those of `serve_world` are the vectors: 384 values."""
_LOW = 0.25
"""Of the rate: a candidate that uses all cores slows down the stable version as well, so that their times are alike."""
_GUARDRAILS, _MIN_ANSWERS = Guardrails().rules(), Shadow.model_fields["min_answers"].default

Scores = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    name: str
    stable: int
    candidate: int
    rate: float
    """Requests a second of all clients; 0: each client waits for its answer before it asks again."""
    times: int
    fails: bool = True
    """Whether the candidate must fail; if not, it must not."""
    delayed: bool = False


@dataclass(frozen=True)
class Trial:
    judgement: Judgement
    looks: int
    mirror: ShadowCounts
    seconds: float


class Delayed:
    """Implements Scorer: the real one, with a delay for one version."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.version: int | None = None

    def score(self, recommender: str, number: int, feed: Mapping[str, Scores], patience: float | None = None) -> Scores:
        scores = self._scorer.score(recommender, number, feed, patience)
        time.sleep(DELAY if number == self.version else 0)
        return scores


class Stand:
    """A gateway in this process, a Triton, and of each size two versions that differ in their number alone."""

    def __init__(self, home: Path, sizes: Sequence[int], undo: ExitStack) -> None:
        self._world = world = World(home, 1, {})
        undo.callback(world.close)
        spec = serve_world.spec(NAME, serve={"retrieve": {"candidates": CANDIDATES}})
        world.put_spec(spec)
        self.versions = {size: self._register(home / f"unit-{size}", spec, size) for size in sizes}
        triton = EmbeddedTriton(home / "triton")
        undo.callback(triton.stop)
        triton.start()
        server = TritonServer(triton, ModelRepository(triton.home, world.artifacts))
        undo.callback(server.close)
        if faults := server.place(NAME, [ServedUnit(NAME, version.number, version.files) for version in world.registry.list(NAME)]):
            raise SystemExit(f"Triton does not serve all versions: {faults}")
        self._scorer, self._mirrors = Delayed(server), SqlShadowTotals(world.engine)
        events, catalogue = SqlEventLog(world.engine), SqlCatalogue(world.engine)
        stores = Stores(
            world.routes,
            world.registry,
            world.artifacts,
            world.recommenders,
            events,
            self._mirrors,
            catalogue,
            OpenIndexes(),
            id_hash(world.engine),
        )
        self._gateway = Gateway(stores, self._scorer, DatabaseClock(world.engine), "bench")
        undo.callback(self._gateway.close)
        refreshes = Loop("gateway", [self._gateway.refresh], 0.1)
        undo.callback(refreshes.stop)
        refreshes.start()
        self._numbers = itertools.count(1)

    def trials(self, case: Case, requests: int) -> Iterator[Trial]:
        self._serve(Route(case.stable, salt=f"warm-{next(self._numbers)}"))
        self._send(0.0, requests)  # a stable version has answered before it gets a candidate
        self._scorer.version = case.candidate if case.delayed else None
        open_verdicts = {Verdict.INCONCLUSIVE, Verdict.PASS} if case.fails else {Verdict.INCONCLUSIVE}
        some = requests // 3 if case.fails else requests  # a failure needs no minimum of answers
        for _ in range(case.times):
            began, mirrored, looks, judgement = time.monotonic(), 0, 0, Judgement(Verdict.INCONCLUSIVE, "")
            generation = self._serve(Route(case.stable, case.candidate, salt=f"trial-{next(self._numbers)}", shadow=True))
            while judgement.verdict in open_verdicts and looks < LOOKS:
                looks += 1
                mirrored += self._send(case.rate, some)
                mirror = self._total(generation, mirrored)
                judgement = judge_mirror(_GUARDRAILS, mirror, _MIN_ANSWERS)
            yield Trial(judgement, looks, mirror, time.monotonic() - began)

    def _register(self, folder: Path, spec: Any, items: int) -> tuple[int, int]:
        folder.mkdir(parents=True)
        paths = serve_world.write(folder, spec, items, USERS)
        for name in ("embeddings.npz", "queries.npz"):
            _widen(paths[name])
        files = {name: self._world.artifacts.put(path) for name, path in sorted(paths.items())}
        versions = (Version(NAME, 0, f"by-hand-{items}-{n}", digest_of(files), files, {}, LINEAGE, None, _now()) for n in range(2))
        first, second = (self._world.registry.register(version).number for version in versions)
        return first, second

    def _serve(self, route: Route) -> int:
        """The generation, once the gateway serves it."""
        generation, reports = self._world.serve(route).generation, self._world.routes.reports
        until(f"generation {generation} is served", lambda: reports(NAME, _now() - timedelta(seconds=5)).get("bench") == generation)
        return generation

    def _send(self, rate: float, requests: int) -> int:
        """How many the stable version answered itself: these are mirrored."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(self._client, rate / CLIENTS, requests // CLIENTS, next(self._numbers)) for _ in range(CLIENTS)]
            return sum(client.result() for client in clients)

    def _client(self, rate: float, requests: int, seed: int) -> int:
        chance, due = random.Random(seed), time.monotonic()  # noqa: S311
        futures: list[Future[Answer]] = []
        for _ in range(requests):
            if rate:
                due += chance.expovariate(rate)
                time.sleep(max(0.0, due - time.monotonic()))
            with suppress(Overloaded):
                futures.append(self._gateway.submit(Question(NAME, chance.randint(1, USERS))))
            if futures and not rate:
                futures[-1].result()
        return sum(future.result().fallback is None for future in futures)

    def _total(self, generation: int, mirrored: int) -> ShadowCounts:
        """Once the shadow has processed all requests and the gateway has reported them."""

        def total() -> ShadowCounts | None:
            counts = self._mirrors.total(NAME, generation)
            return counts if counts.compared + counts.dropped >= mirrored else None

        return until(f"the totals of generation {generation}: {mirrored} requests", total)


def measure(stand: Stand, case: Case, requests: int) -> Iterator[Outcome]:
    trials: list[Trial] = []

    def check(subject: str, judgement: Judgement) -> Iterator[Missed]:
        text = f"{case.name}, {subject}: {judgement.verdict.value}: {judgement.reason}"
        say(text)
        if (judgement.verdict is Verdict.FAIL) != case.fails:
            yield Missed(f"wrong verdict: {text}")

    for trial in stand.trials(case, requests):
        trials.append(trial)
        yield from check(f"trial {len(trials)}, {trial.looks} looks", trial.judgement)
    total = reduce(ShadowCounts.plus, (trial.mirror for trial in trials))
    yield from check("all trials together", judge_mirror(_GUARDRAILS, total, _MIN_ANSWERS))
    verdicts = Counter(trial.judgement.verdict for trial in trials)
    for verdict in Verdict:
        if verdict is not Verdict.ERROR:
            yield Row(case.name, "shadow", verdict.value, f"of {case.times}", [verdicts[verdict]])
    yield Row(case.name, "shadow", "looks", "", [trial.looks for trial in trials])
    yield Row(case.name, "shadow", "requests compared", "", [trial.mirror.compared for trial in trials])
    yield Row(case.name, "shadow", "requests dropped", "", [trial.mirror.dropped for trial in trials])
    yield Row(case.name, "shadow", "a trial took", "s", [trial.seconds for trial in trials])
    for q in (0.5, 0.99):
        label, (stable, candidate) = f"p{100 * q:.0f}", _latencies(total, q)
        by_trial = [later / sooner for sooner, later in (_latencies(trial.mirror, q) for trial in trials)]
        yield Row(case.name, "stable", label, "ms", [stable])
        yield Row(case.name, "candidate", label, "ms", [candidate])
        yield Row(case.name, "candidate", f"{label}, all trials", "x stable", [candidate / stable])
        yield Row(case.name, "candidate", f"{label}, by trial", "x stable", by_trial)


def _latencies(mirror: ShadowCounts, q: float) -> tuple[float, float]:
    """In milliseconds, of the stable version and of the candidate."""
    stable, candidate = (1000 * (quantile(times, q) or float("nan")) for times in (mirror.stable, mirror.candidate))
    return stable, candidate


def _widen(path: Path) -> None:
    """Repeats the vectors within each row: the order of their products stays the same."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays | {"vectors": np.tile(arrays["vectors"], WIDER)})


def _cases(versions: Mapping[int, tuple[int, int]], times: int, rate: float) -> Iterator[Case]:
    for items, pair in versions.items():
        yield Case(f"{items:,} items, identical, {rate:g} a second", *pair, rate, times - times // 2, fails=False)
        if times > 1:
            yield Case(f"{items:,} items, identical, {CLIENTS} at once", *pair, 0.0, times // 2, fails=False)
    few, least, most = min(times, SLOW_TIMES), min(versions), max(versions)
    yield Case(f"{least:,} items, scores {1000 * DELAY:g} ms later", *versions[least], _LOW * rate, few, delayed=True)
    if most >= 100 * least:
        yield Case(f"{least:,} items, candidate {most:,}", versions[least][0], versions[most][0], _LOW * rate, few)


def _now() -> datetime:
    return datetime.now(UTC)


@benchmark("shadows")
def shadows(
    times: Annotated[int, "trials of identical versions for each size of the catalogue"] = 100,
    items: list[int] = [400, 60_000],  # noqa: B006  never changed
    requests: Annotated[int, "between two looks"] = 112,
    rate: float = 40,
) -> Iterator[Outcome]:
    logging.getLogger("services").setLevel(logging.ERROR)
    with scratch() as folder, ExitStack() as undo:
        stand = Stand(folder / "home", items, undo)
        for case in _cases(stand.versions, times, rate):
            say(f"{case.name}: {case.times} trials")
            yield from measure(stand, case, requests)


if __name__ == "__main__":
    shadows()
