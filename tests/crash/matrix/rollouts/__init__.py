"""Rollouts: a version is loaded, rises step by step, and takes over or goes back; each change of traffic happens once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from shared.contracts.records import RolloutSpec
from shared.contracts.stage import digest_of
from shared.domain.machine import Request
from shared.domain.rollout import MACHINE, RolloutStatus
from shared.domain.route import Route
from shared.ports import Record, Version
from shared.testing.records import LINEAGE
from tests.crash.matrix.plane import Plane
from tests.crash.matrix.points import AFTER_EFFECT, AFTER_INTENT, BEFORE_COMMIT, BEFORE_INTENT, LATE, MEETINGS, Points
from tests.crash.matrix.rollouts import traffic
from tests.crash.matrix.rollouts.lives import EARLIER, ROLLOUT, STEPS, RolloutLife, lives
from tests.crash.matrix.rollouts.plane import build
from tests.crash.matrix.rollouts.serving import Serving
from tests.crash.matrix.subject import NAME, START, Move, Mutant, Place
from tests.crash.matrix.wire import Clock

_A_MINUTE = timedelta(minutes=1)


def _sets_route(move: Move) -> bool:
    """Every change of traffic in a life without trouble."""
    return move.life == RolloutSubject.ordinary and "set_route" in move.effects


def _takes_over(move: Move) -> bool:
    """Decided anew, it would be decided from another route."""
    return _sets_route(move) and move.target == "promoted"


def _begins(move: Move) -> bool:
    """Another route follows it."""
    return _sets_route(move) and move.target == "canary"


class RolloutSubject:
    name = "rollouts"
    hero = ROLLOUT
    machine = MACHINE
    ordinary = "promoted"
    meetings: Sequence[str] = (*MEETINGS, LATE)
    mutants: Mapping[str, Mutant] = {
        # both replicas read the same revision, and both write
        "swap": Mutant(
            "compare-and-swap is removed",
            (Place(BEFORE_INTENT, BEFORE_COMMIT), Place(AFTER_INTENT, BEFORE_COMMIT), Place(BEFORE_COMMIT, BEFORE_COMMIT)),
            _sets_route,
        ),
        # the route names the new version alone: whoever decides anew finds no stable version to compare it with
        "intent": Mutant("intents are not kept", (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)), _takes_over),
        "order": Mutant("effects come before the intent", (Place(BEFORE_INTENT),), _takes_over),
        "repeat": Mutant("a route that is there is put again", (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)), _sets_route),
        # one replica sleeps until the other has led the rollout to its end
        "guard": Mutant(
            "a rollout that has moved on still sets its route", (Place(BEFORE_INTENT, LATE), Place(AFTER_INTENT, LATE)), _begins
        ),
    }

    def lives(self) -> Mapping[str, RolloutLife]:
        return lives()

    def rows(self, engine: Engine) -> SqlResources[RolloutStatus, RolloutSpec]:
        return SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)

    def prepare(self, engine: Engine, artifacts: Path, life: RolloutLife) -> None:
        SqlRecommenders(engine).put(life.spec(), START, "ada")
        registry = SqlRegistry(engine)
        for number in range(1, (2 if life.back else life.version) + 1):
            made = Version(NAME, 0, f"r{number}", digest_of({}), {}, {"parity": 1e-7}, LINEAGE, None, START)
            registry.register(made)
        if life.stable:
            SqlRoutes(engine).put(NAME, Route(1), START - 2 * _A_MINUTE, "ada", "a test")
        if life.back:
            SqlRoutes(engine).put(NAME, Route(2), START - _A_MINUTE, "ada", "a test")
        if life.after:
            self._create(engine, EARLIER, life.version - 1, life, START - _A_MINUTE)
        self._create(engine, ROLLOUT, life.version, life, START)

    def outside(self, life: RolloutLife, clock: Clock, engine: Engine, artifacts: Path) -> Serving:
        rows = self.rows(engine)
        clock.set(START)
        return Serving(
            life, clock, engine, lambda: rows.get(ROLLOUT).status, lambda verb: rows.ask(ROLLOUT, Request(verb, "ada"), clock.now())
        )

    def plane(self, engine: Engine, artifacts: str, clock: Clock, points: Points, mutant: str, claims: bool) -> Plane:
        return build(engine, clock, points, mutant, claims)

    def traces(self, engine: Engine, outside: Serving) -> Mapping[str, Counter[str]]:
        routes = Counter(
            f"{entry.route.generation}: {entry.route.stable}/{entry.route.candidate} at {entry.route.weight}, step {entry.route.step},"
            f" {entry.route.salt} ({entry.reason}, {entry.actor})"
            for entry in SqlRoutes(engine).history(NAME)
        )
        return {"routes": routes}

    def problems(self, engine: Engine, outside: Serving) -> list[str]:
        past = list(reversed(SqlRoutes(engine).history(NAME)))
        rollouts = {record.id: record.spec.version for record in self.rows(engine).list()}
        return outside.faults + traffic.problems(past, STEPS, rollouts, outside.served, outside.answered)

    def row_problems(self, record: Record[Any, Any], outside: Serving) -> list[str]:
        steps = [report.step for report in record.status.reports]
        return [f"a step of {record.id} was reported twice: {steps}"] if len(set(steps)) != len(steps) else []

    def figures(self, traces: Mapping[str, Counter[str]], expected: Mapping[str, Counter[str]], outside: Serving) -> Mapping[str, int]:
        came = Counter(words["came"] for words in outside.puts)
        return {
            "changes": traces["routes"].total(),
            "asked_for": expected["routes"].total(),
            "put_again": came["repeated"],
            "put_too_late": came["refused"],
        }

    @staticmethod
    def _create(engine: Engine, id: str, version: int, life: RolloutLife, now: Any) -> None:
        spec = RolloutSpec(version, life.spec().document(), back=Request("rollback", "ada", "a test") if life.back else None)
        SqlResources(engine, "rollout", RolloutStatus, RolloutSpec).create(Record(id, NAME, spec, RolloutStatus(), now, now), "ada")
