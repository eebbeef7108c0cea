"""One recommendation of four stages, and what it costs: a catalogue of 60,000 items, 160,000 users, 500 candidates, 10 items.

    python -m benchmarks.serve [--seconds 20] [--connections 1 8 32] [--items 60000] [--grown 250000 1000000] [--users 160000] [--no-peer]

On one real tritonserver, in one run and with the same model: the bare gRPC call that scores 500 candidates, a plain FastAPI proxy in
front of that call, and the platform's whole request; beside them BentoML with that model in its own process. CPU is that of all processes
but the HTTP clients; the bare call's client is part of the call, so its CPU counts. Then the platform and the bare call alone with
catalogues of other sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import numpy as np
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import serve_contenders, serve_world
from benchmarks.harness import Row, benchmark, cpu_seconds, family, say, scratch, until
from benchmarks.load import Load, Outcome, Target, bodies_of, separately
from benchmarks.rollout_world import World
from benchmarks.serve_contenders import CANDIDATES
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess

NAME = "films"
WHOLE, BARE = "eyas, the whole request", "the bare gRPC call"
_WARM = 3.0
_SATURATED, _OVERLOAD = 0.7, 1.5
_OPEN, _CROWD = 64, 512
"""Connections of the open loops: more than are ever under way."""


@dataclass(frozen=True)
class Measured:
    outcome: Outcome
    cpu: float
    """Seconds of all cores."""
    stages: Mapping[str, float]
    """Seconds of all requests, by stage; those that were answered together share theirs."""

    @property
    def cost(self) -> float:
        """CPU of one request, in milliseconds."""
        return 1000 * self.cpu / len(self.outcome.milliseconds)

    def rows(self, case: str, contender: str) -> Iterator[Row]:
        yield Row(case, contender, "requests a second", "1/s", [self.outcome.rate])
        for name, value in self.outcome.percentiles(50, 99).items():
            yield Row(case, contender, f"latency, {name}", "ms", [value])
        yield Row(case, contender, "CPU of a request", "ms", [self.cost])
        yield Row(case, contender, "failed or fallen back", "", [self.outcome.failed])
        for stage, seconds in self.stages.items():
            yield Row(case, contender, f"of that, {stage}", "ms", [1000 * seconds / len(self.outcome.milliseconds)])


@benchmark("serve")
def serve(
    seconds: float = 20,
    connections: Sequence[int] = (1, 8, 32),
    items: int = 60_000,
    grown: Annotated[Sequence[int], "catalogues of other sizes"] = (250_000, 1_000_000),
    users: int = 160_000,
    peer: Annotated[bool, "BentoML too, which is installed on first use"] = True,
) -> Iterator[Row]:
    yield from _of_size(items, users, seconds, connections, whole=True, peer=peer)
    for size in grown:
        yield from _of_size(size, users, seconds, connections[-1:], whole=False, peer=False)


def start(folder: Path, items: int, users: int, undo: ExitStack, settings: Mapping[str, str] = {}) -> tuple[World, PlatformProcess]:
    """A platform that serves one version; it answers."""
    say(f"a version of {items:,} items and {users:,} users")
    home, data = folder / "home", folder / "data"
    data.mkdir(parents=True)
    world = World(home, 1, {})
    spec = serve_world.spec(NAME, serve={"retrieve": {"candidates": CANDIDATES}})
    world.serve(Route(serve_world.register(world, spec, items, users)), NAME)
    world.close()
    platform = undo.enter_context(PlatformProcess(home, data, settings=settings))
    until("it answers by itself", lambda: platform.model_answer(NAME), 300)
    return world, platform


def target_of(platform: PlatformProcess) -> Target:
    return Target.of(str(platform.client.base_url), NAME, (platform.home / "token").read_text())


def bodies(users: int) -> list[str]:
    return bodies_of(np.random.default_rng(7).integers(1, users + 1, 20_000).tolist())


def _of_size(items: int, users: int, seconds: float, connections: Sequence[int], whole: bool, peer: bool) -> Iterator[Row]:
    with ExitStack() as undo:
        world, platform = start(undo.enter_context(scratch()), items, users, undo)
        assert platform.process is not None
        own = psutil.Process(platform.process.pid)
        triton = next(child for child in own.children(recursive=True) if "tritonserver" in child.name())
        until("Triton has the models that it serves, and no others", lambda: len(triton.children(recursive=True)) == 1)
        servers = family(triton.pid)
        model = serve_contenders.Model.of(world, NAME, serve_contenders.address_of(triton), undo.enter_context(scratch()))
        chance = np.random.default_rng(7)
        people = chance.integers(1, users + 1, 20_000).tolist()
        load = partial(Load, target_of(platform), bodies_of(people))
        for count in connections:
            case = f"{items:,} items, {count} at once"
            ours = measure(load(count), seconds, [own, *servers], partial(_stages, platform))
            bare = measure(partial(model.run, count, people), seconds, [psutil.Process(), *servers])
            yield from ours.rows(case, WHOLE)
            yield Row(case, WHOLE, "resident memory of the platform", "MiB", [own.memory_info().rss / 2**20])
            yield Row(case, WHOLE, "CPU beside the bare call", "x", [ours.cost / bare.cost])
            yield from bare.rows(case, BARE)
            if whole:
                candidates = [chance.integers(1, items + 1, CANDIDATES).tolist() for _ in people[:2000]]
                lines = [json.dumps({"user": user, "items": some}) for user, some in zip(people, candidates, strict=False)]
                peers: dict[str, Any] = {"a FastAPI proxy": serve_contenders.proxy(model, NAME)}
                peers |= {serve_contenders.BENTO: serve_contenders.bento(model.folder)} if peer else {}
                for contender, started in peers.items():
                    with started as (processes, port):
                        behind = [*processes, *servers] if contender != serve_contenders.BENTO else processes
                        result = measure(Load(Target("127.0.0.1", port, "/score", "none"), lines, count), seconds, behind)
                    yield from result.rows(case, contender)
                    yield Row(case, contender, "CPU beside the bare call", "x", [result.cost / bare.cost])
        if whole:
            for share, count in ((_SATURATED, _OPEN), (_OVERLOAD, _CROWD)):
                rate = share * ours.outcome.rate
                say(f"{rate:.0f} a second, {share:.0%} of the most that the platform answers")
                result = measure(load(count, rate), seconds, [own, *servers])
                yield from result.rows(f"{items:,} items, {rate:.0f} a second", WHOLE)


def measure(
    load: Load | Callable[[float], Outcome],
    seconds: float,
    processes: Sequence[psutil.Process],
    stages: Callable[[], Mapping[str, float]] = dict,
) -> Measured:
    """Warms up, then measures; a `Load` runs in a process of its own."""
    run = partial(separately, load) if isinstance(load, Load) else load
    run(_WARM)
    before, former = cpu_seconds(processes), stages()
    outcome = run(seconds)
    spent = cpu_seconds(processes) - before
    return Measured(outcome, spent, {stage: total - former.get(stage, 0.0) for stage, total in stages().items()})


def _stages(platform: PlatformProcess) -> dict[str, float]:
    """Seconds so far, by stage."""
    samples = (sample for family in text_string_to_metric_families(httpx.get(platform.metrics_url).text) for sample in family.samples)
    return {sample.labels["stage"]: sample.value for sample in samples if sample.name == "eyas_recommend_stage_seconds_sum"}


if __name__ == "__main__":
    serve()
