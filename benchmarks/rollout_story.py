"""A rollout's whole life under 200 requests a second over HTTP: loading, each step, promotion, going back, a second rollout that a
person promotes, and the removal of what no route names any more. No request may fail.

The platform is a process of its own, as `eyas up` starts it; users like what they get, so the real analysis passes each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row
from benchmarks.rollout_load import Asked, Load
from benchmarks.rollout_split import WEIGHTS
from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess

_QUIET = 10.0
_BEFORE, _AFTER = 1.0, 3.0
_USERS = 20_000
_PATIENCE = 600.0


@dataclass(frozen=True)
class Event:
    what: str
    began: float
    ended: float


def story(home: Path, rate: float, say: Callable[[str], None]) -> tuple[list[Row], bool]:
    """The second value: whether no request failed."""
    world = World(home, _USERS, _rollout())
    first, second, third = world.version(), world.version(), world.version()
    world.serve(Route(first))
    with PlatformProcess(home, home) as platform:
        _wait("version 1 answers", lambda: _answers(platform))
        token = (home / "token").read_text()
        with Load(str(platform.client.base_url), token, NAME, _USERS, rate, likes=lambda _: 0.5) as load:
            teller = Teller(platform, world, load, say)
            began = time.monotonic()
            time.sleep(_QUIET)
            teller.events.append(Event("nothing happens", began, time.monotonic()))
            teller.rolls_out(second, "r-second")
            time.sleep(_AFTER)
            left = time.monotonic()
            teller.does("rollback", "going back by one call", f"/v1/recommenders/{NAME}:rollback", lambda: _stable(platform) == first)
            time.sleep(_AFTER)
            teller.promoted_by_hand(third, "r-third")
            say(f"  waits until version {second} is taken away")
            _wait(f"version {second} is gone", lambda: second not in _loaded(platform))
            teller.events.append(Event("the old version is removed", time.monotonic(), time.monotonic()))
            say(f"  {time.monotonic() - left:.0f} s after its last route: gone")
            time.sleep(_AFTER)
            ended = time.monotonic()
    world.close()
    return _rows(teller.events, load, rate, ended - began, say)


class Teller:
    def __init__(self, platform: PlatformProcess, world: World, load: Load, say: Callable[[str], None]) -> None:
        self._platform, self._world, self._load, self._say = platform, world, load, say
        self.events: list[Event] = []

    def rolls_out(self, version: int, id: str) -> None:
        """By itself, step by step, up to its promotion."""
        began = time.monotonic()
        self._world.start(version, id)
        seen: tuple[str, int] = ("", -1)
        deadline = time.monotonic() + _PATIENCE
        while seen[0] != "promoted":
            found = self._platform.get(f"/v1/rollouts/{id}")
            now = (found["state"], found["step"] if found["step"] is not None else -1)
            if now != seen:
                self._say(f"  {time.monotonic() - began:5.1f} s: {now[0]}, step {now[1]}: {found['reason'][:110]}")
                what = {"canary": f"step to {WEIGHTS[now[1]]:.0%}", "promoted": "promotion", "loading": "loading the candidate"}.get(now[0])
                if what is None and now[0] != "pending":
                    raise SystemExit(f"the rollout {id} is {found['state']}: {found['reason']}")
                if what:
                    self.events.append(Event(what, time.monotonic(), time.monotonic()))
                seen = now
            if time.monotonic() > deadline:
                raise SystemExit(f"the rollout {id} is {found['state']} after {_PATIENCE:g} s: {found['reason']}")
            time.sleep(0.1)

    def promoted_by_hand(self, version: int, id: str) -> None:
        self.events.append(Event("loading another candidate", time.monotonic(), time.monotonic()))
        self._world.start(version, id)
        _wait("a canary", lambda: self._platform.get(f"/v1/rollouts/{id}")["state"] == "canary")
        self.does("promote", "promotion by a person", f"/v1/rollouts/{id}:promote", lambda: _stable(self._platform) == version)

    def does(self, verb: str, what: str, path: str, until: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._platform.post(path, {"reason": "a benchmark"})
        _wait(f"{verb} is done", until)
        self.events.append(Event(what, began, time.monotonic()))
        self._say(f"  {what}: {time.monotonic() - began:.1f} s")


def _rollout() -> dict[str, Any]:
    analysis = {"attribution": "1s", "window": "300ms", "max_harm": "30%", "min_users": 30, "min_answers": 30, "every": "1s"}
    return {"steps": list(WEIGHTS), "keep_warm": "5s", "analysis": {**analysis, "deadline": "10m"}}


def _rows(events: Sequence[Event], load: Load, rate: float, seconds: float, say: Callable[[str], None]) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    for event in events:
        near = [one for one in load.asked if event.began - _BEFORE <= one.due <= event.ended + _AFTER]
        rows += _latencies(event.what, near)
    rows += _latencies("all of it", load.asked)
    failed = load.failures
    for one in failed[:10]:
        say(f"  failed: {one.failure[:200]}")
    rows += [
        Row("all of it", "eyas", "requests a second, asked for", "1/s", [rate]),
        Row("all of it", "eyas", "requests a second, made", "1/s", [len(load.asked) / seconds]),
        Row("all of it", "eyas", "likes that weren't taken", "", [load.untold]),
    ]
    return rows, not failed


def _latencies(case: str, asked: Sequence[Asked]) -> list[Row]:
    times = [1000 * one.seconds for one in asked if not one.failure] or [float("nan")]
    p50, p99 = np.percentile(times, [50, 99])
    return [
        Row(case, "eyas", "requests", "", [len(asked)]),
        Row(case, "eyas", "failed requests", "", [sum(bool(one.failure) for one in asked)]),
        Row(case, "eyas", "latency, p50", "ms", [float(p50)]),
        Row(case, "eyas", "latency, p99", "ms", [float(p99)]),
        Row(case, "eyas", "latency, longest", "ms", [max(times)]),
    ]


def _answers(platform: PlatformProcess) -> bool:
    answer = platform.client.post(f"/v1/recommend/{NAME}", json={"user": 1})
    return answer.is_success and answer.json()["fallback"] is None


def _stable(platform: PlatformProcess) -> int:
    route = platform.get("/v1/serving")["routes"][NAME]
    return int(route["stable"]) if not route["candidate"] else 0


def _loaded(platform: PlatformProcess) -> set[int]:
    models = platform.get("/v1/serving")["server"]["models"]
    return {int(one["version"]) for one in models if one["recommender"] == NAME and one["state"] == "READY"}


def _wait(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {_PATIENCE:g} s")
        time.sleep(0.1)
