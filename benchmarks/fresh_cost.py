"""What recent likes cost on a whole platform with a real Triton: CPU and time of a request, by family.

    python -m benchmarks.fresh_cost [--families ease itemknn mf session] [--requests 1500]

Each family serves two recommenders that differ by `serve.recent` alone. Known users who have liked five items since the training ask, one
after the other, in turns of both. CPU is that of all processes of the platform, Triton among them, without the benchmark's own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import psutil

from benchmarks.fresh_behaviour import ARMS, MODELS, USERS, spec, write_world
from benchmarks.harness import Outcome, Row, benchmark, cpu_seconds, say, scratch
from tests.servers.platform_process import PlatformProcess, until

ITEMS, ROUNDS = 2_000, 5


def asked(platform: PlatformProcess, name: str, users: Sequence[int]) -> tuple[float, list[float]]:
    """Returns the CPU of a request, and the time of each, in milliseconds."""
    assert platform.process is not None
    process = psutil.Process(platform.process.pid)
    processes = [process, *process.children(recursive=True)]
    before, times = cpu_seconds(processes), []
    for user in users:
        began = time.perf_counter()
        answer = platform.client.post(f"/v1/recommend/{name}", json={"user": user, "k": 10}).raise_for_status().json()
        times.append(1e3 * (time.perf_counter() - began))
        assert answer["fallback"] is None, answer
    return 1e3 * (cpu_seconds(processes) - before) / len(users), times


def measured(platform: PlatformProcess, family: str, data: Path, requests: int) -> Iterator[Row]:
    names = {arm: f"{family}-{arm}" for arm in ARMS}
    random = np.random.default_rng(5)
    for arm, recent in ARMS.items():
        platform.promoted(spec(names[arm], MODELS[family], data, 1, recent))
    users, films = (
        list(range(1, 101)),
        [item["item"] for item in platform.post(f"/v1/recommend/{names['off']}", {"user": 1, "k": 100})["items"]],
    )
    for name in names.values():
        for user in users:
            liked = random.choice(films, 5, replace=False).tolist()
            platform.post("/v1/events", {"events": [{"recommender": name, "user": user, "item": film, "value": 5} for film in liked]})
        until("the version answers", lambda name=name: platform.post(f"/v1/recommend/{name}", {"user": 1})["fallback"] is None)  # type: ignore[misc]
        asked(platform, name, users)
    results: dict[str, list[tuple[float, list[float]]]] = {arm: [] for arm in ARMS}
    for _ in range(ROUNDS):
        for arm in ARMS:
            results[arm].append(asked(platform, names[arm], random.choice(users, requests // ROUNDS).tolist()))
    for arm, rounds in results.items():
        yield Row(family, f"recent {arm}", "CPU per request", "ms", [cpu for cpu, _ in rounds])
        yield Row(family, f"recent {arm}", "p50", "ms", [statistics.median(times) for _, times in rounds])
        yield Row(family, f"recent {arm}", "p99", "ms", [float(np.quantile(times, 0.99)) for _, times in rounds])
    ratios = [on / off for (on, _), (off, _) in zip(results["on"], results["off"], strict=True)]
    yield Row(family, "on / off", "CPU per request", "x", ratios)


@benchmark("fresh-cost")
def fresh_cost(
    families: Annotated[Sequence[str], "of the model"] = tuple(MODELS), requests: Annotated[int, "of each recommender"] = 1500
) -> Iterator[Outcome]:
    with scratch() as folder, ExitStack() as undo:
        data = folder / "data"
        write_world(data, USERS, ITEMS, 1, USERS)
        platform = undo.enter_context(PlatformProcess(folder / "home", data))
        for family in families:
            say(family)
            yield from measured(platform, family, data, requests)


if __name__ == "__main__":
    fresh_cost()
