"""Kill points of an apply: the process that answers it dies by SIGKILL before and after each database write and each commit.

`python -m tests.support.apply_kills URL` plays every cell on one database and prints the verdicts as JSON. It is a process of its own,
because it forks. A cell is a case (the spec is new, changed, or applied without a run), a point, and how the client sends the apply
again: with the same Idempotency-Key or without a key.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Container
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, delete, event, select

from services.api.app import create_app
from services.api.idempotency import STALE
from services.store.engine import open_engine
from services.store.recommenders import SqlRecommenders
from services.store.resources import SqlResources
from services.store.tables import audit, history, recommender_history, recommenders, resources, stored_responses
from shared.contracts.records import RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.domain.run import RunStatus
from shared.ports import MakeRun, PutResult
from tests.support.api_world import NOW, TOKEN, Client, World, document

KEY = {"Idempotency-Key": "one apply"}
RETRIES = {"same key": KEY, "no key": {}}
CASES = ("new", "changed", "without a run")
EARLIER = document(gates=[{"metric": "auc", "min": 0.5}])
"""The spec before a changed one."""


class TwoTransactions(SqlRecommenders):
    """Mutant: the run is stored after the spec."""

    def put(
        self, spec: RecommenderSpec, now: datetime, actor: str, expected: Container[int] | None = None, make_run: MakeRun | None = None
    ) -> PutResult:
        result = super().put(spec, now, actor, expected)
        if make_run is None or not self._wants_run(result):
            return result
        return replace(result, run=self._runs.create(make_run(result.recommender), actor))

    def _wants_run(self, result: PutResult) -> bool:
        return result.changed


class RunForEqualSpec(TwoTransactions):
    """Mutant: an equal spec starts a run too."""

    def _wants_run(self, result: PutResult) -> bool:
        return True


STORES = {"": SqlRecommenders, "two transactions": TwoTransactions, "run for an equal spec": RunForEqualSpec}


@dataclass
class KillPoints:
    """Counts the points that a process reaches, and kills the process at the point of this number."""

    at: int = 0
    reached: list[str] = field(default_factory=list)

    def listen(self, engine: Engine) -> None:
        event.listen(engine, "before_cursor_execute", lambda one, _cursor, statement, *_: self._reach_write("before", one, statement))
        event.listen(engine, "after_cursor_execute", lambda one, _cursor, statement, *_: self._reach_write("after", one, statement))
        event.listen(engine, "commit", self._commit)
        event.listen(engine, "checkin", self._checkin)

    def _reach_write(self, when: str, connection: Connection, statement: str) -> None:
        words = statement.split()
        if words[0] in ("INSERT", "UPDATE", "DELETE"):
            connection.info["written"] = table = words[1 if words[0] == "UPDATE" else 2]
            self._reach(f"{when} {words[0]} {table}")

    def _commit(self, connection: Connection) -> None:
        """A point names the table that the transaction wrote last."""
        connection.info["committed"] = connection.info.pop("written", "nothing")
        self._reach(f"before COMMIT {connection.info['committed']}")

    def _checkin(self, _connection: Any, record: Any) -> None:
        """A connection comes back to the pool after its commit."""
        if (table := record.info.pop("committed", None)) is not None:
            self._reach(f"after COMMIT {table}")

    def _reach(self, point: str) -> None:
        self.reached.append(point)
        if len(self.reached) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Verdict:
    case: str
    at: int
    point: str
    retry: str
    mutant: str
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Platform:
    """The API on one database. No connection is open between two calls, so that the process can fork."""

    def __init__(self, url: str, mutant: str = "") -> None:
        self.engine = open_engine(url)
        self._time = NOW
        world: Any = World(engine=self.engine)
        world.clock.now = lambda: self._time
        stores = {"recommenders": STORES[mutant](self.engine), "runs": SqlResources(self.engine, "run", RunStatus, RunSpec)}
        app = create_app(world.door(), replace(world.parts(), **stores), None)
        self._client = Client(app, headers={"Authorization": f"Bearer {TOKEN}"})

    def begin(self, case: str) -> None:
        self._time = NOW
        with self.engine.begin() as connection:
            for table in (stored_responses, audit, history, recommender_history, recommenders, resources):
                connection.execute(delete(table))
        if case == "changed":
            self.apply("new", {}, EARLIER)
            self._time += timedelta(seconds=1)
        self.engine.dispose()

    def apply(self, case: str, headers: dict[str, str], spec: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        run = "false" if case == "without a run" else "true"
        answer = self._client.post(f"/v1/recommenders?run={run}", json=spec or document(), headers=headers)
        self.engine.dispose()
        return answer.status_code, answer.json()

    def die(self, case: str, at: int) -> None:
        """Another process answers the apply and dies at this point. The client waits until its key may be taken again."""
        pid = os.fork()
        if pid == 0:
            try:
                KillPoints(at).listen(self.engine)
                self.apply(case, KEY)
            finally:
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise RuntimeError(f"the process was not killed at point {at} of '{case}'")
        self._time += STALE + timedelta(seconds=1)

    def stored(self) -> tuple[list[int], dict[int, list[str]], Counter[str]]:
        """The generations, the runs of each generation, and the number of history entries of each run."""
        with self.engine.connect() as connection:
            generations = list(connection.execute(select(recommender_history.c.generation)).scalars())
            runs: dict[int, list[str]] = {}
            for row in connection.execute(select(resources.c.id, resources.c.spec).where(resources.c.kind == "run")):
                runs.setdefault(row.spec["generation"], []).append(row.id)
            entries = Counter(connection.execute(select(history.c.id).where(history.c.kind == "run")).scalars())
        self.engine.dispose()
        return sorted(generations), runs, entries


def points(platform: Platform, case: str) -> tuple[list[str], tuple[int, dict[str, Any]]]:
    """Those of an undisturbed apply, in a process that is not killed, and its answer."""
    platform.begin(case)
    watch = KillPoints()
    watch.listen(platform.engine)
    answer = platform.apply(case, KEY)
    return list(watch.reached), answer


def play(platform: Platform, verdict: Verdict, undisturbed: tuple[int, dict[str, Any]]) -> Verdict:
    platform.begin(verdict.case)
    platform.die(verdict.case, verdict.at)
    status, body = platform.apply(verdict.case, RETRIES[verdict.retry])
    generations, runs, entries = platform.stored()
    expected = [1, 2] if verdict.case == "changed" else [1]
    verdict.lost += [f"generation {number}" for number in expected if number not in generations]
    verdict.doubled += [f"generation {number}" for number in generations if number not in expected]
    wanted = 0 if verdict.case == "without a run" else 1
    for generation in generations:
        count = len(runs.get(generation, ()))
        verdict.lost += [f"run of generation {generation}"] * (wanted - count)
        verdict.doubled += [f"run of generation {generation}"] * (count - wanted)
    verdict.wrong += [f"run {id} has {count} history entries" for id, count in entries.items() if count != 1]
    _check_answer(verdict, (status, body), undisturbed, runs.get(expected[-1], []))
    return verdict


def _check_answer(verdict: Verdict, answer: tuple[int, Any], undisturbed: tuple[int, Any], runs: list[str]) -> None:
    """With the same key it is the answer of an undisturbed apply. Without a key it may say that nothing was left to do."""
    (status, body), (first, expected) = answer, undisturbed
    if any(body.get(name) != expected[name] for name in ("name", "generation", "spec")):
        verdict.wrong.append(f"the answer is {status} {body}")
    elif verdict.retry == "same key" and (status, body["run"]) != (first, runs[0] if runs else None):
        verdict.wrong.append(f"the answer is {status} with run {body['run']}, not {first} with {runs}")
    elif body["run"] is not None and body["run"] not in runs:
        verdict.wrong.append(f"the answer names run {body['run']}, not one of {runs}")


def main(url: str) -> list[Verdict]:
    """A mutant is killed only while its own transactions run."""
    verdicts = []
    for mutant in STORES:
        for case in CASES[:1] if mutant else CASES:
            reached, undisturbed = points(Platform(url, mutant), case)
            platform = Platform(url, mutant)
            for at, point in enumerate(reached, 1):
                if not mutant or point.split()[-1] not in ("audit", "stored_responses"):
                    verdicts += [play(platform, Verdict(case, at, point, retry, mutant), undisturbed) for retry in RETRIES]
            platform.engine.dispose()
    return verdicts


if __name__ == "__main__":
    print(json.dumps([asdict(verdict) for verdict in main(sys.argv[1])]))  # noqa: T201
