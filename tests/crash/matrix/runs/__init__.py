"""Runs: attempts of stages are started, adopted, tried again, and what they publish is registered, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.tables import history
from shared.contracts.card import CARD
from shared.contracts.records import RunSpec
from shared.domain.machine import Request
from shared.domain.run import MACHINE, RunStatus
from shared.ports import Record, Version
from shared.run_factory import new_run
from tests.crash.matrix.plane import Plane, lead
from tests.crash.matrix.points import AFTER_EFFECT, AFTER_INTENT, BEFORE_COMMIT, BEFORE_INTENT, CALL, MEETINGS, Points
from tests.crash.matrix.runs.jobs import Jobs
from tests.crash.matrix.runs.lives import EARLIER, RUN, RunLife, lives
from tests.crash.matrix.runs.plane import build
from tests.crash.matrix.subject import NAME, START, Move, Mutant, Place
from tests.crash.matrix.wire import Clock

_AN_HOUR = timedelta(hours=1)


def _starts(move: Move) -> bool:
    """The stages that follow each other in a life without trouble: each of their starts."""
    return move.life == "registered" and move.effects == ("start_stage",)


class RunSubject:
    name = "runs"
    hero = RUN
    machine = MACHINE
    ordinary = "registered"
    meetings: Sequence[str] = MEETINGS
    mutants: Mapping[str, Mutant] = {
        # another life doesn't find the job that was started
        "names": Mutant("attempts have no deterministic names", (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)), _starts),
        # both replicas read the same revision, and both write
        "swap": Mutant(
            "compare-and-swap is removed",
            (Place(BEFORE_INTENT, BEFORE_COMMIT), Place(AFTER_INTENT, BEFORE_COMMIT), Place(BEFORE_COMMIT, BEFORE_COMMIT)),
            _starts,
        ),
        # the stage is decided anew, later than its job began: what is cut by that time (events, the limit) would be another
        "intent": Mutant("intents are not kept", (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)), _starts),
        "order": Mutant("effects come before the intent", (Place(BEFORE_INTENT),), _starts),
        # the job that is there is started again, by whoever takes over, and by both of them
        "adoption": Mutant(
            "a job that is there is not adopted", (Place(AFTER_EFFECT), Place(BEFORE_COMMIT), Place(AFTER_INTENT, CALL)), _starts
        ),
    }

    def lives(self) -> Mapping[str, RunLife]:
        return lives()

    def rows(self, engine: Engine) -> SqlResources[RunStatus, RunSpec]:
        return SqlResources(engine, "run", RunStatus, RunSpec)

    def prepare(self, engine: Engine, artifacts: Path, life: RunLife) -> None:
        clock = Clock()
        clock.set(START)
        recommenders, rows = SqlRecommenders(engine), self.rows(engine)
        recommenders.put(life.spec(), START, "ada")
        if life.after:
            rows.create(new_run(recommenders.get(NAME), EARLIER, "full", "a test", None, START - _AN_HOUR), "ada")
        if life.after == "registered":
            jobs = Jobs(RunLife(""), clock, artifacts, RunStatus, lambda verb: None)
            lead(lambda points: build(engine, str(artifacts), clock, points), jobs)
        run = new_run(recommenders.get(NAME), RUN, "full" if life.parent is None else "warm", "a test", life.parent, START)
        rows.create(run, "ada")

    def outside(self, life: RunLife, clock: Clock, engine: Engine, artifacts: Path) -> Jobs:
        rows = self.rows(engine)
        return Jobs(life, clock, artifacts, lambda: rows.get(RUN).status, lambda verb: rows.ask(RUN, Request(verb, "ada"), clock.now()))

    def plane(self, engine: Engine, artifacts: str, clock: Clock, points: Points, mutant: str, claims: bool) -> Plane:
        return build(engine, artifacts, clock, points, mutant, claims)

    def traces(self, engine: Engine, outside: Jobs) -> Mapping[str, Counter[str]]:
        return {
            "versions": Counter(map(_content, SqlRegistry(engine).list(NAME))),
            "starts": Counter(f"{job.run} {job.stage}" for job in outside.jobs),
            "stops": Counter(kind for kind, _ in outside.effects if kind == "stop"),
        }

    def problems(self, engine: Engine, outside: Jobs) -> list[str]:
        names = [name for kind, name in outside.effects if kind == "start"]
        twice = [f"a name was started twice: {names}"] if len(set(names)) != len(names) else []
        return twice + _overlaps(engine)

    def row_problems(self, record: Record[Any, Any], outside: Jobs) -> list[str]:
        began = {job.name: job.at for job in outside.jobs}
        stages = [done.stage for done in record.status.stages]
        found = [f"a stage of {record.id} was done twice: {stages}"] if len(set(stages)) != len(stages) else []
        for done in record.status.stages:
            if done.reused or not began:
                continue
            if done.attempt not in began and done.attempt.startswith(RUN):
                found.append(f"{done.attempt} was never started")
            elif done.attempt in began and done.started_at > began[done.attempt]:
                found.append(f"{done.attempt} is said to have begun {done.started_at - began[done.attempt]} after its job did")
        return found

    def figures(self, traces: Mapping[str, Counter[str]], expected: Mapping[str, Counter[str]], outside: Jobs) -> Mapping[str, int]:
        return {"effects": traces["starts"].total(), "stages": expected["starts"].total(), "adopted": outside.adopted}


def _content(version: Version) -> str:
    """All of it but when: its card names the time of its snapshot, which a death puts off."""
    files = {name: name if name == CARD else file.sha256 for name, file in sorted(version.files.items())}
    return f"{version.number} of {version.run}: {files} {version.metrics}"


def _overlaps(engine: Engine) -> list[str]:
    """Single flight: of one recommender's runs, never two at a time."""
    with engine.connect() as connection:
        lines = list(connection.execute(select(history).where(history.c.kind == "run").order_by(history.c.seq)))
    active: set[str] = set()
    for line in lines:
        if line.target == MACHINE.initial or MACHINE.terminal(line.target):
            active.discard(line.id)
        else:
            active.add(line.id)
        if len(active) > 1:
            return [f"at the same time: {active}"]
    return []
