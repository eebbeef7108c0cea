"""A rollout's whole life under 200 requests a second over HTTP: loading, each step, promotion, going back, a second rollout that a
person promotes, and the removal of versions that no route names any more. No request may fail.

The platform is a process of its own, as `eyas up` starts it; users like half of the answers, so the real analysis passes each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Missed, Outcome, Row, percentiles, say, until
from benchmarks.load import Reply, Users
from benchmarks.rollout_split import WEIGHTS
from benchmarks.rollout_world import NAME, World
from shared.domain.route import Route
from tests.servers.platform_process import PlatformProcess

_QUIET = 10.0
_BEFORE, _AFTER = 1.0, 3.0
_USERS = 20_000
_PATIENCE = 600.0
_ANALYSIS = {
    "attribution": "1s",
    "window": "300ms",
    "max_harm": "30%",
    "min_users": 30,
    "min_answers": 30,
    "every": "1s",
    "deadline": "10m",
}


@dataclass(frozen=True)
class Event:
    name: str
    began: float
    ended: float


def story(home: Path, rate: float) -> Iterator[Outcome]:
    world = World(home, _USERS, {"steps": list(WEIGHTS), "keep_warm": "5s", "analysis": _ANALYSIS})
    first, second, third = world.version(), world.version(), world.version()
    world.serve(Route(first))
    with PlatformProcess(home, home) as platform:
        until("version 1 answers", lambda: platform.model_answer(NAME), _PATIENCE)
        with Users(str(platform.client.base_url), (home / "token").read_text(), NAME, _USERS, rate, likes=0.5) as users:
            narrator = Narrator(platform, world)
            began = time.monotonic()
            time.sleep(_QUIET)
            narrator.note("nothing happens", began)
            narrator.watch(second, "r-second")
            time.sleep(_AFTER)
            left = time.monotonic()
            narrator.act("rollback", "going back by one call", f"/v1/recommenders/{NAME}:rollback", lambda: _stable(platform) == first)
            time.sleep(_AFTER)
            narrator.promote(third, "r-third")
            until(f"version {second} is removed", lambda: second not in _loaded(platform), _PATIENCE)
            narrator.note("the old version is removed")
            say(f"version {second} is removed {time.monotonic() - left:.0f} s after its last route")
            time.sleep(_AFTER)
            seconds = time.monotonic() - began
    world.close()
    for event in narrator.events:
        yield from _rows(event.name, [reply for reply in users.replies if event.began - _BEFORE <= reply.due <= event.ended + _AFTER])
    yield from _rows("all of it", users.replies)
    yield Row("all of it", "eyas", "requests a second, asked for", "1/s", [rate])
    yield Row("all of it", "eyas", "requests a second, made", "1/s", [len(users.replies) / seconds])
    yield Row("all of it", "eyas", "likes that weren't taken", "", [users.refused_likes])
    if users.failures:
        yield Missed(f"{len(users.failures)} requests failed, such as: {users.failures[0].failure[:200]}")


class Narrator:
    """Acts on the platform and records when each event began and ended."""

    def __init__(self, platform: PlatformProcess, world: World) -> None:
        self._platform, self._world = platform, world
        self.events: list[Event] = []

    def note(self, name: str, began: float | None = None) -> None:
        now = time.monotonic()
        self.events.append(Event(name, now if began is None else began, now))

    def watch(self, version: int, id: str) -> None:
        """A rollout by itself, step by step, up to its promotion."""
        self._world.start(version, id)
        last: tuple[str, int] = ("", -1)
        deadline = time.monotonic() + _PATIENCE
        while last[0] != "promoted":
            rollout = self._platform.get(f"/v1/rollouts/{id}")
            state, step = rollout["state"], rollout["step"] if rollout["step"] is not None else -1
            if (state, step) != last:
                last = (state, step)
                say(f"{state}, step {step}: {rollout['reason'][:110]}")
                names = {"canary": f"step to {WEIGHTS[step]:.0%}", "promoted": "promotion", "loading": "loading the candidate"}
                if state in names:
                    self.note(names[state])
                elif state != "pending":
                    raise SystemExit(f"the rollout {id} is {state}: {rollout['reason']}")
            if time.monotonic() > deadline:
                raise SystemExit(f"the rollout {id} is {state} after {_PATIENCE:g} s: {rollout['reason']}")
            time.sleep(0.1)

    def promote(self, version: int, id: str) -> None:
        self.note("loading another candidate")
        self._world.start(version, id)
        until("a canary", lambda: self._platform.get(f"/v1/rollouts/{id}")["state"] == "canary", _PATIENCE)
        self.act("promote", "promotion by a person", f"/v1/rollouts/{id}:promote", lambda: _stable(self._platform) == version)

    def act(self, verb: str, name: str, path: str, done: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._platform.post(path, {"reason": "a benchmark"})
        until(f"{verb} is done", done, _PATIENCE)
        self.note(name, began)
        say(f"{name}: {time.monotonic() - began:.1f} s")


def _rows(case: str, replies: Sequence[Reply]) -> Iterator[Row]:
    seconds = [reply.seconds for reply in replies if not reply.failure] or [float("nan")]
    yield Row(case, "eyas", "requests", "", [len(replies)])
    yield Row(case, "eyas", "failed requests", "", [sum(bool(reply.failure) for reply in replies)])
    for name, value in (percentiles(seconds, 50, 99, scale=1000) | {"longest": 1000 * max(seconds)}).items():
        yield Row(case, "eyas", f"latency, {name}", "ms", [value])


def _stable(platform: PlatformProcess) -> int:
    route = platform.get("/v1/serving")["routes"][NAME]
    return int(route["stable"]) if not route["candidate"] else 0


def _loaded(platform: PlatformProcess) -> set[int]:
    models = platform.get("/v1/serving")["server"]["models"]
    return {int(model["version"]) for model in models if model["recommender"] == NAME and model["state"] == "READY"}
