"""Lives of rows, told as scripts, and the check that a death, or a rival, in the middle of one changes nothing about it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from sqlalchemy import select

from services.store.tables import history, resources, route_history
from shared.contracts.events import Interaction
from shared.domain.machine import Request
from shared.domain.route import Route
from shared.domain.traffic import ShadowCounts
from shared.ports import Signals
from tests.support.drift_readings import look
from tests.support.simulated_platform import NAME, REFITTED, ROUNDS, Death, Fate, FateOfEachMove, Move, Parts, Plane, World, but_the_card

TIMES = {
    "at",
    "settled",
    "since",
    "retry_at",
    "waiting_since",
    "step_since",
    "attempt_since",
    "sick_since",
    "looked_at",
    "started_at",
    "ended_at",
    "until",
    "calm_after",
    "alerted",
}
Fated = Callable[[World], Fate]


@dataclass(frozen=True)
class Life:
    """What the hero goes through, and the states that it has then been in."""

    name: str
    kind: str
    prepare: Callable[[World], object]
    path: Sequence[str]
    ticks: Sequence[str] = field(default=())

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def live(world: World, life: Life, fate: Fate) -> World:
    """To the end of the script: whoever dies is followed by another."""
    life.prepare(world)
    plane = world.plane(fate)
    for _ in range(ROUNDS):
        world.play()
        try:
            plane.tick(*life.ticks)
        except Death:
            plane = world.plane(fate)
        world.clock.pass_by(seconds=1)
        if not world.script and world.row().status.state == life.path[-1] and len(world.path()) >= len(life.path):
            return world
    raise AssertionError(f"{life}: after {ROUNDS} rounds {world.row().status}, having been {world.path()}")


def ending(world: World) -> dict[str, Any]:
    """Everything that a life leaves behind, but for times, and for names of attempts."""
    rows = select(resources.c.kind, resources.c.id, resources.c.status, resources.c.intent, resources.c.request)
    lines = select(history.c.kind, history.c.id, history.c.source, history.c.target, history.c.reason, history.c.actor)
    past = select(route_history).order_by(route_history.c.generation)
    with world.engine.connect() as connection:
        return {
            "rows": sorted((row.kind, row.id, str(timeless(row.status)), row.intent, row.request) for row in connection.execute(rows)),
            "history": sorted(Counter(map(tuple, connection.execute(lines))).items()),
            "path": world.path(),
            "versions": [(one.number, one.run, but_the_card(one.files), one.metrics, one.parent) for one in world.registry.list(NAME)],
            "routes": [(one.generation, one.stable, one.candidate, one.weight, one.step, one.actor) for one in connection.execute(past)],
            "jobs": sorted(Counter((one.run, one.stage) for one in world.executor.started).items()),
            "stopped": len(world.executor.stopped),
        }


def timeless(value: Any) -> Any:
    """Of looks at a rollout those that saw the same are one: who comes back looks once more."""
    if isinstance(value, dict):
        kept = {
            name: timeless(one) for name, one in value.items() if name not in TIMES and not (name == "attempt" and isinstance(one, str))
        }
        return kept | {name: [one for one, _ in groupby(kept[name])] for name in kept.keys() & {"looks"}}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def check(world: World, life: Life, fate: Fate, undisturbed: dict[str, Any]) -> None:
    """The life is lived to the same end: nothing lost, nothing twice."""
    live(world, life, fate)
    assert fate.struck, "the point was never reached"
    assert ending(world) == undisturbed
    for run in world.runs.list(limit=1000):
        stages = [done.stage for done in run.status.stages]
        assert len(set(stages)) == len(stages), "a stage was done twice"
    assert len({version.run for version in world.registry.list(NAME)}) == len(world.registry.list(NAME)), "a run registered twice"
    assert max(world.executor.calls.values(), default=0) <= 2
    names = [one.attempt for one in world.executor.started]
    assert len(set(names)) == len(names), "two jobs have one name"
    asked_for = {0.0, *(step.weight for step in world.spec.rollout.steps)}
    assert {weight for _, _, _, weight, _, _ in undisturbed["routes"]} <= asked_for


class Undisturbed:
    """Lives lived without a disturbance, each once, and others to hold against them."""

    def __init__(self, new_world: Callable[..., World], parts: Parts | None = None) -> None:
        self._new_world = new_world
        self._parts = parts
        self._lived: dict[Life, tuple[dict[str, Any], list[Move]]] = {}

    def of(self, life: Life) -> tuple[dict[str, Any], list[Move]]:
        """How the life ends, and its moves."""
        if life not in self._lived:
            fate = Fate(life.kind)
            world = live(self._new_world(self._parts), life, fate)
            assert world.path() == list(life.path)
            self._lived[life] = ending(world), fate.moves
        return self._lived[life]

    def disturb(self, life: Life, fated: Fated) -> Fate:
        expected, _ = self.of(life)
        world = self._new_world(self._parts)
        fate = fated(world)
        check(world, life, fate, expected)
        world.close()
        return fate


def dying(kind: str, move: int, point: str) -> Fated:
    def strike() -> None:
        raise Death(point)

    return lambda world: Fate(kind, move, point, strike)


def dying_at_each_move(kind: str, point: str) -> Fated:
    """One control plane after the other dies, each at the same point of the next move."""

    def strike() -> None:
        raise Death(point)

    return lambda world: FateOfEachMove(kind, point=point, strike=strike, position=lambda: len(world.path()))


def rivalled(life: Life, move: int, point: str) -> Fated:
    """At that point a second controller, which nobody knew of, does a few passes over the same database."""

    def fate(world: World) -> Fate:
        def strike() -> None:
            rival: Plane = world.plane(made)
            for _ in range(2):
                rival.tick(*life.ticks)
                world.clock.pass_by(milliseconds=300)
                world.play()

        made = Fate(life.kind, move, point, strike)
        return made

    return fate


def assert_event_is_in_one_snapshot(world: World, point: str) -> None:
    """The etl stage of a run is started twice, and meanwhile somebody likes something: the next warm run must learn of it, and once."""
    world.apply(data={"interactions": {"uri": "a.csv", "also": "events"}, "items": {"uri": "b.csv", "key": "film"}})
    world.start_run("r1")
    with pytest.raises(Death):
        world.plane(dying("run", 0, point)(world)).tick("run")
    world.clock.pass_by(seconds=1)
    like = Interaction(recommender=NAME, user=1, item=77, at=world.clock.now())
    world.events.interactions([like], [True], timedelta(seconds=1))
    world.clock.pass_by(seconds=1)
    plane = world.plane()
    world.until(plane, "registered", "run")
    world.hero = ("", "")
    world.start_run("r2", mode="warm", serving=1)
    world.until(plane, "registered", "run")
    files = [one.inputs["events"]["events.csv"] for one in world.executor.started if one.stage == "etl"]
    found = sum("1,77," in world.artifacts.read(file).decode() for file in files)
    assert len(files) == 2
    assert found == 1, f"of an event in {found} snapshots"


# Runs


def run(*plays: tuple[str, str], **changes: Any) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.apply(**changes)
        for stage, how in plays:
            world.plays.setdefault(stage, []).append(how)
        world.start_run()

    return prepare


def cancelled_in(state: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.plays["train"] = ["hang"]
        world.start_run()
        world.script = [(state, lambda: world.ask("cancel"))]

    return prepare


def gate_failed(stage: str) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.metrics[stage] = {"candidate.auc": 0.1, "parity": 0.1}
        world.start_run()

    return prepare


def refit_worse(world: World) -> None:
    world.metrics["refit"] = {**REFITTED, "refit.hr@10": 0.1}
    world.start_run()


def after_another(*plays: tuple[str, str], **changes: Any) -> Callable[[World], None]:
    """A first run has registered its version; the hero is the one after it."""

    def prepare(world: World) -> None:
        world.start_run("r0")
        world.until(world.plane(), "registered", "run")
        world.hero = ("", "")
        run(*plays, **changes)(world)

    return prepare


def retried(stage: str | None = None) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.plays["evaluate"] = ["crash"] * 3
        world.start_run("r0")
        world.until(world.plane(), "failed", "run")
        world.data.marks["a.csv"] = "2 bytes"
        world.plays.clear()
        world.retry("r0", "r1", stage)

    return prepare


def waiting_for_another(world: World) -> None:
    """Fresh: whether it could reuse what the other one published is lost with a death before that is written down."""
    world.start_run("r0")
    world.plane().tick("run")
    world.hero = ("", "")
    world.clock.pass_by(seconds=1)
    world.start_run("r1", fresh=True)


def of_a_parent_that_is_gone(world: World) -> None:
    world.start_run(mode="warm", serving=99)


WHOLE = ("pending", "etl", "train", "evaluate", "refit", "export", "verify", "registered")
RUNS = [
    Life("registered", "run", run(), WHOLE, ("run",)),
    Life("crashed once", "run", run(("train", "crash")), (*WHOLE[:3], *WHOLE[2:]), ("run",)),
    Life(
        "too slow once", "run", run(("train", "hang"), resources={"train": {"timeout": "3s"}}), (*WHOLE[:3], "train", *WHOLE[2:]), ("run",)
    ),
    Life("crashed twice", "run", run(("train", "crash"), ("train", "crash")), (*WHOLE[:3], "train", *WHOLE[2:]), ("run",)),
    Life("without a place at first", "run", run(("train", "starve")), WHOLE, ("run",)),
    Life("evicted twice", "run", run(("train", "evict"), ("train", "evict")), (*WHOLE[:3], "train", *WHOLE[2:]), ("run",)),
    Life("out of memory", "run", run(("train", "outgrow"), ("train", "outgrow")), (*WHOLE[:3], "train", "failed"), ("run",)),
    Life("reusing all it can", "run", after_another(), WHOLE, ("run",)),
    Life("reusing a part", "run", after_another(model={"train": {"epochs": 9}}), WHOLE, ("run",)),
    Life("retried where it ended", "run", retried(), WHOLE, ("run",)),
    Life("retried from its middle", "run", retried("train"), WHOLE, ("run",)),
    Life("after another of its recommender", "run", waiting_for_another, WHOLE, ("run",)),
    Life("refused", "run", run(("evaluate", "refuse")), (*WHOLE[:4], "failed"), ("run",)),
    Life("crashed to the end", "run", run(*[("etl", "crash")] * 3), ("pending", "etl", "etl", "etl", "failed"), ("run",)),
    Life("rejected by a metric", "run", gate_failed("evaluate"), (*WHOLE[:4], "rejected"), ("run",)),
    Life("rejected by the refit", "run", refit_worse, (*WHOLE[:5], "rejected"), ("run",)),
    Life("without a refit", "run", run(split={"refit": False}), tuple(state for state in WHOLE if state != "refit"), ("run",)),
    Life("rejected by verify", "run", gate_failed("verify"), (*WHOLE[:7], "rejected"), ("run",)),
    Life("that can't begin", "run", of_a_parent_that_is_gone, ("pending", "failed"), ("run",)),
    Life("cancelled in the queue", "run", cancelled_in("pending"), ("pending", "cancelled"), ("run",)),
    Life("cancelled at work", "run", cancelled_in("train"), ("pending", "etl", "train", "cancelled"), ("run",)),
]

# Rollouts

Act = Callable[[World], object]


def asked(verb: str) -> Act:
    return lambda world: world.ask(verb)


def again(world: World) -> None:
    """Nobody sees the first try; as many as are wanted come to the second."""
    world.users = 40
    world.start_again(2)


def silent(*versions: int) -> Act:
    return lambda world: world.fake_server.silent.update((NAME, version) for version in versions)


def answering(world: World) -> None:
    world.fake_server.silent.clear()


def rollout(
    *script: tuple[str, Act], stable: bool = True, before: Act = lambda world: None, shadow: str | None = None, **analysis: Any
) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        if analysis or shadow:
            world.apply(rollout={"steps": ["20%", "50%"], "shadow": shadow, "analysis": analysis or world.spec.rollout.analysis})
        if stable:
            world.routes.put(NAME, Route(world.version()), world.clock.now(), "ada", "a test")
        world.start_rollout(world.version())
        before(world)
        world.script = [(state, functools.partial(act, world)) for state, act in script]

    return prepare


def few(world: World) -> None:
    world.users = 5


def harmful(world: World) -> None:
    world.disliked.add(2)


def erring(world: World) -> None:
    world.mirrored = ShadowCounts(200, 100, {60: 200}, {60: 100})


def broken(world: World) -> None:
    world.fake_server.broken[NAME, 2] = "corrupt"


def deaf(world: World) -> None:
    silent(2)(world)


SHORT: dict[str, Any] = {"attribution": "1s", "window": "1s", "max_harm": "30%", "min_users": 30, "deadline": "5s", "every": "1s"}
CANARY = ("pending", "loading", "canary")
SHADOW = ("pending", "loading", "shadow")
SERVED = ("rollout", "placement")
ROLLOUTS = [
    Life("of the first version", "rollout", rollout(stable=False), ("pending", "loading", "promoted"), SERVED),
    Life("promoted", "rollout", rollout(), (*CANARY, "canary", "promoted"), SERVED),
    Life("rolled back for harm", "rollout", rollout(before=harmful), (*CANARY, "rolled_back"), SERVED),
    Life("that can't be loaded", "rollout", rollout(before=broken), ("pending", "loading", "rolled_back"), SERVED),
    Life("that fell sick", "rollout", rollout(("canary", silent(2)), before=few), (*CANARY, "rolled_back"), SERVED),
    Life("halted for the stable version", "rollout", rollout(("canary", silent(1)), before=few), (*CANARY, "paused"), SERVED),
    Life("inconclusive", "rollout", rollout(("paused", asked("abort")), before=few, **SHORT), (*CANARY, "paused", "aborted"), SERVED),
    Life(
        "paused and promoted",
        "rollout",
        rollout(("canary", asked("pause")), ("paused", asked("promote"))),
        (*CANARY, "paused", "promoted"),
        SERVED,
    ),
    Life(
        "paused and resumed",
        "rollout",
        rollout(("canary", asked("pause")), ("paused", asked("resume"))),
        (*CANARY, "paused", "canary", "canary", "promoted"),
        SERVED,
    ),
    Life(
        "paused while loading",
        "rollout",
        rollout(("loading", asked("pause")), ("paused", answering), ("paused", asked("resume")), before=deaf),
        ("pending", "loading", "paused", "loading", "canary", "canary", "promoted"),
        SERVED,
    ),
    Life(
        "skipped",
        "rollout",
        rollout(("canary", asked("skip")), ("paused", asked("promote")), before=few, **SHORT),
        (*CANARY, "canary", "paused", "promoted"),
        SERVED,
    ),
    Life(
        "skipped while paused",
        "rollout",
        rollout(("canary", asked("pause")), ("paused", asked("skip")), ("canary", asked("abort")), before=few),
        (*CANARY, "paused", "canary", "aborted"),
        SERVED,
    ),
    Life("through a shadow", "rollout", rollout(shadow="3s"), (*SHADOW, "canary", "canary", "promoted"), SERVED),
    Life("bad in its shadow", "rollout", rollout(shadow="3s", before=erring), (*SHADOW, "rolled_back"), SERVED),
    Life(
        "sick in its shadow",
        "rollout",
        rollout(("shadow", silent(2)), shadow="1m"),
        (*SHADOW, "rolled_back"),
        SERVED,
    ),
    Life(
        "out of its shadow at a word",
        "rollout",
        rollout(("shadow", asked("skip")), ("canary", asked("abort")), shadow="1m", before=few),
        (*SHADOW, "canary", "aborted"),
        SERVED,
    ),
    Life("promoted out of its shadow", "rollout", rollout(("shadow", asked("promote")), shadow="1m"), (*SHADOW, "promoted"), SERVED),
    Life(
        "paused in its shadow",
        "rollout",
        rollout(("shadow", asked("pause")), ("paused", asked("resume")), ("shadow", asked("abort")), shadow="1m"),
        (*SHADOW, "paused", "shadow", "aborted"),
        SERVED,
    ),
    Life("promoted by a person", "rollout", rollout(("canary", asked("promote")), before=few), (*CANARY, "promoted"), SERVED),
    Life("aborted at once", "rollout", rollout(("pending", asked("abort"))), ("pending", "aborted"), SERVED),
    Life("aborted while loading", "rollout", rollout(("loading", asked("abort")), before=deaf), ("pending", "loading", "aborted"), SERVED),
    Life(
        "tried again",
        "rollout",
        rollout(("canary", asked("abort")), ("aborted", again), before=few),
        (*CANARY, "canary", "promoted"),
        SERVED,
    ),
    Life("aborted under way", "rollout", rollout(("canary", asked("abort")), before=few), (*CANARY, "aborted"), SERVED),
]

# Retrainers


def drifting(world: World) -> None:
    world.apply()
    world.plane().ensure()
    world.start_run("r1")
    world.hero = ("run", "r1")
    plane = world.plane()
    world.until(plane, "registered")
    world.hero = ("rollout", "r1-rollout")
    world.until(plane, "promoted")
    world.hero = ("retrainer", NAME)
    world.signals.now = Signals(look(genres=0.5))
    world.script = [("retraining", lambda: setattr(world.signals, "now", Signals(look(9, genres=0.0))))]


def scheduled(world: World) -> None:
    """Due once: the next time is a day away."""
    drifting(world)
    world.signals.now = Signals(look(9, genres=0.0))
    world.script = [("retraining", nothing)]
    due = world.clock.now() + timedelta(minutes=1)
    world.apply(retrain={"schedule": f"{due.minute} {due.hour} * * *", "mode": "warm", "cooldown": "10s"})


def scheduled_while_busy(world: World) -> None:
    """What is under way when it is due ends half a minute later."""

    def end() -> None:
        world.plays.clear()
        world.runs.ask("by-hand", Request("cancel", "ada"), world.clock.now())

    scheduled(world)
    world.plays["etl"] = ["hang"]
    started = [("watching", lambda: world.start_run("by-hand", mode="warm", serving=1)), *[("watching", nothing)] * 90]
    world.script = [*started, ("watching", end)]


def deleted_and_back(world: World) -> None:
    world.apply()
    world.plane().ensure()
    world.hero = ("retrainer", NAME)
    world.script = [("watching", lambda: world.recommenders.delete(NAME, world.clock.now())), ("retired", world.apply)]


def deleted_while_cooling(world: World) -> None:
    drifting(world)
    world.script.append(("cooling", lambda: world.recommenders.delete(NAME, world.clock.now())))


def useless(world: World) -> None:
    """Its first retraining is rejected, and it may not try again."""
    drifting(world)
    world.metrics["evaluate"] = {"candidate.auc": 0.3}
    world.apply(retrain={"on": [{"drift": {"looks": 1}}], "cooldown": "10s", "give_up_after": 1})
    world.script = [*recurring(world), ("alerting", lambda: setattr(world.signals, "now", Signals(look(30, genres=0.0))))]


def recurring(world: World) -> list[tuple[str, Callable[[], object]]]:
    """Drift rests with the retrainer, for what holds it back meanwhile is told with a time."""

    def moves(at: int, size: float) -> Callable[[], object]:
        return lambda: setattr(world.signals, "now", Signals(look(at, genres=size)))

    return [("retraining", moves(9, 0.0)), ("watching", moves(20, 0.5))]


def useless_and_asked(world: World) -> None:
    useless(world)

    def ask() -> None:
        world.metrics["evaluate"] = {"candidate.auc": 0.8}
        world.signals.now = Signals(look(30, genres=0.0))
        world.ask("retrain")

    world.script = [*recurring(world), ("alerting", ask)]


def deleted_while_alerting(world: World) -> None:
    useless(world)
    world.script = [*recurring(world), ("alerting", lambda: world.recommenders.delete(NAME, world.clock.now()))]


def nothing() -> None:
    """A round passes."""


FIRED = ("watching", "retraining", "cooling", "watching")
RETRAINERS = [
    Life("fired", "retrainer", drifting, FIRED),
    Life("scheduled", "retrainer", scheduled, FIRED),
    Life("scheduled while busy", "retrainer", scheduled_while_busy, ("watching", *FIRED)),
    Life("deleted, and its name taken again", "retrainer", deleted_and_back, ("watching", "retired", "watching")),
    Life("useless, then calm", "retrainer", useless, (*FIRED, "alerting", "watching")),
    Life("useless, then by hand", "retrainer", useless_and_asked, (*FIRED, "alerting", *FIRED[1:])),
    Life("deleted while it alerted", "retrainer", deleted_while_alerting, (*FIRED, "alerting", "retired")),
    Life("deleted while it cooled", "retrainer", deleted_while_cooling, (*FIRED[:3], "retired")),
]
LIVES = [*RUNS, *ROLLOUTS, *RETRAINERS]
