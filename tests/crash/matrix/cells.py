"""One cell of the matrix: a fresh world, a victim that dies where it is told, two replicas that race to the end, and the check."""

from __future__ import annotations

import functools
import gc
import os
import re
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine, select

from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.tables import history, resources
from shared.artifacts import FsspecArtifacts
from shared.domain.machine import Request
from shared.domain.run import MACHINE, RunStatus
from shared.launch import new_run
from shared.ports import HistoryEntry, Record
from tests.crash.matrix import plane
from tests.crash.matrix.lives import EARLIER, NAME, RUN, START, Life, lives
from tests.crash.matrix.outside import Hand, Outside
from tests.crash.matrix.plane import Doomed, Points, Racing, Watched
from tests.crash.matrix.wire import Clock, Local, Wire, pair

REPLICAS = 2
AN_HOUR = timedelta(hours=1)
AWAY = 2
"""Seconds of the world's time between a death and those that take over."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)")


class Database(Protocol):
    """Where the state is: fresh for each cell, with the run of its life waiting in it.

    The engine is made once, for what it has compiled is inherited by whoever is forked; its connections are not.
    """

    name: str

    def fresh(self, life: Life, folder: Path) -> None:
        """Also what was published before, in the folder's `artifacts`."""

    def open(self) -> Engine:
        """For a forked process: with connections of its own."""

    def ours(self) -> Engine:
        """For the world's process: not before its children are forked."""

    def leave(self) -> None:
        """The cell is over."""


@dataclass(frozen=True)
class Move:
    """The `number`-th commit of a life: a transition, a new attempt in the same state, or a note (it waits, it pauses)."""

    life: str
    number: int
    source: str
    target: str
    effects: tuple[str, ...]
    changed: tuple[str, ...]
    calls: int
    """To the world: an effect may take more than one."""

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.source, self.target, self.effects, self.changed if self.source == self.target else ())

    def __str__(self) -> str:
        what = self.effects or (self.changed if self.source == self.target else ())
        return f"{self.source} -> {self.target}" + (f" ({', '.join(what)})" if what else "")

    def points(self) -> Iterator[tuple[str, int]]:
        """A move without effects has no intent: it dies before and after its commit."""
        if self.effects:
            yield plane.BEFORE_INTENT, 1
            yield plane.AFTER_INTENT, 1
            yield from ((plane.AFTER_EFFECT, nth) for nth in range(1, self.calls + 1))
        yield plane.BEFORE_COMMIT, 1
        yield plane.AFTER_COMMIT, 1


@dataclass(frozen=True)
class Cell:
    database: str
    life: str
    move: int
    point: str
    nth: int
    round: int
    seed: int
    meeting: str
    mutant: str = ""
    claims: bool = False
    """The control planes claim their rows, as those of a cluster do; without, all of them lead all rows."""

    def __str__(self) -> str:
        words = [self.database, self.life, f"move {self.move}", f"{self.point} {self.nth}", f"round {self.round}", f"seed {self.seed}"]
        words += [f"meeting at '{self.meeting}'"] if self.meeting else []
        words += ["with claims"] if self.claims else []
        return ", ".join([*words, *([self.mutant] if self.mutant else [])])


@dataclass
class Verdict:
    """What became of a cell. `lost` and `doubled` say which: commits, stages, versions, effects."""

    kills: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    effects: int = 0
    stages: int = 0
    adopted: int = 0

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.other)


@dataclass
class Ending:
    """What a life leaves behind, but for times and the names of attempts."""

    rows: Counter[str] = field(default_factory=Counter)
    commits: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)

    def missing(self, other: Ending) -> list[str]:
        """What the other has and this one hasn't, or not so often."""
        return [f"{name}: {what}" for name, theirs in vars(other).items() for what in (theirs - getattr(self, name)).elements()]


def prepare(engine: Engine, artifacts: Path, life: Life) -> None:
    """The run of the life waits, after what was before it."""
    clock = Clock()
    clock.set(START)
    recommenders, rows = SqlRecommenders(engine), SqlResources(engine, "run", RunStatus)
    recommenders.put(life.spec(), START, "ada")
    if life.after:
        rows.create(new_run(recommenders.get(NAME), EARLIER, "full", "a test", None, START - AN_HOUR), "ada")
    if life.after == "registered":
        folder = artifacts.parent / "earlier"
        folder.mkdir(parents=True)
        outside = Outside(Life(""), clock, FsspecArtifacts(str(artifacts)), folder, lambda: "", lambda verb: None)
        lead(engine, artifacts, outside)
    rows.create(new_run(recommenders.get(NAME), RUN, "full" if life.parent is None else "warm", "a test", life.parent, START), "ada")


def lead(engine: Engine, artifacts: Path, outside: Outside) -> None:
    """In this very process, until no run is left to lead."""
    points = Points(Local(lambda wire, words: outside.answer(Hand(0, wire), words)))
    rows, reconciler = plane.build(engine, str(artifacts), outside.clock, points)
    while rows.list(active=True, limit=1):
        if reconciler.tick() == 0:
            outside.pass_by(1)


Expected = dict[str, tuple[Ending, list[Move]]]
"""By life: how it ends when nobody dies, and its moves."""


class Stage:
    """Where cells are played, one after the other: a database, a folder, a clock."""

    def __init__(self, database: Database, folder: Path, expected: Expected | None = None) -> None:
        self._database = database
        self._folder = folder
        self._clock = Clock()
        self._lives = lives()
        self._expected = {} if expected is None else expected
        self._warm()

    def _warm(self) -> None:
        """One life in this very process, so that what libraries work out at first use is inherited; what is there is kept from the
        collector's eyes, or every child would copy it."""
        with _Play(self._database, self._folder, self._clock, self._lives["registered"]) as play:
            engine = self._database.open()
            lead(engine, play.artifacts, play.outside)
            engine.dispose()
            play.ending()
            play.problems()
        gc.collect()
        gc.freeze()

    def undisturbed(self, life: str) -> tuple[Ending, list[Move]]:
        """How the life ends when nobody dies, and its moves."""
        if life not in self._expected:
            self._expected[life] = self._undisturbed(life)
        return self._expected[life]

    def expected(self) -> Expected:
        for life in self._lives:
            self.undisturbed(life)
        return self._expected

    def moves(self) -> list[Move]:
        """Each kind of move once, where it comes first."""
        found: dict[tuple[Any, ...], Move] = {}
        for life in self._lives:
            for move in self.undisturbed(life)[1]:
                found.setdefault(move.key, move)
        return list(found.values())

    def alone(self, life: str, mutant: str = "") -> Verdict:
        """The life of a single control plane that nobody kills, held against what is expected of it."""
        with _Play(self._database, self._folder, self._clock, self._lives[life]) as play:
            play.cast(Watched, mutant)
            play.go(play.hands)
            return play.judged(self.undisturbed(life)[0])

    def play(self, cell: Cell) -> Verdict:
        expected, _ = self.undisturbed(cell.life)
        with _Play(self._database, self._folder, self._clock, self._lives[cell.life]) as play:
            seeds = [f"{cell.seed} {cell.life} {cell.move} {cell.point} {cell.round} {number}" for number in range(REPLICAS)]
            play.cast(lambda wire: Doomed(wire, cell.move, cell.point, cell.nth), cell.mutant, cell.claims)
            for seed in seeds:
                play.cast(functools.partial(Racing, meeting=cell.meeting, seed=seed), cell.mutant, cell.claims)
            victim, *replicas = play.hands
            play.go([victim])
            if victim.status != -signal.SIGKILL:
                return Verdict(other=[f"the point was never reached: the victim ended with {victim.status}", *play.outside.said])
            play.outside.pass_by(AWAY)
            play.go(replicas)
            found = play.judged(expected)
            found.kills = 1
            return found

    def _undisturbed(self, life: str) -> tuple[Ending, list[Move]]:
        with _Play(self._database, self._folder, self._clock, self._lives[life]) as play:
            play.cast(Watched)
            play.go(play.hands)
            ending = play.ending()
            problems = play.problems()
            if problems:
                raise AssertionError(f"{life}, with nobody disturbing it: {problems}")
            moves = [
                Move(life, number, one["source"], one["target"], tuple(one["effects"]), tuple(one["changed"]), one["calls"])
                for number, one in enumerate(play.outside.moves)
            ]
            return ending, moves


class _Play:
    """One world and its processes."""

    def __init__(self, database: Database, folder: Path, clock: Clock, life: Life) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self._life = life
        self._rows: SqlResources[RunStatus] | None = None
        self.hands: list[Hand] = []

    def __enter__(self) -> _Play:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._database.fresh(self._life, self._folder)
        self.artifacts = self._folder / "artifacts"
        self._outside: Outside | None = None
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self.hands:
            if hand.status is None:
                os.kill(hand.pid, signal.SIGKILL)
                os.waitpid(hand.pid, 0)
                hand.wire.close()
        self._database.leave()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def outside(self) -> Outside:
        """The world begins when its first control plane does: from then on this process has an open database."""
        if self._outside is None:
            self._rows = SqlResources(self._database.ours(), "run", RunStatus)
            self._outside = Outside(self._life, self._clock, FsspecArtifacts(str(self.artifacts)), self._folder, self._state, self._ask)
        return self._outside

    def _state(self) -> str:
        assert self._rows is not None
        return self._rows.get(RUN).status.state

    def _ask(self, verb: str) -> None:
        assert self._rows is not None
        self._rows.ask(RUN, Request(verb, "ada"), self._clock.now())

    def cast(self, points: Callable[[Wire], Points], mutant: str = "", claims: bool = False) -> None:
        """Forks a control plane that begins when it is told to."""
        ours, theirs = pair()
        pid = os.fork()
        if pid == 0:
            gc.disable()
            status = 1
            try:
                for hand in (*self.hands, Hand(0, ours)):
                    hand.wire.close()
                if theirs.receive() is not None:
                    plane.reign(self._database.open, str(self.artifacts), self._clock, points(theirs), mutant, claims)
                    status = 0
            except BaseException:
                theirs.send(call="said", text=traceback.format_exc())
            finally:
                os._exit(status)
        theirs.close()
        self.hands.append(Hand(pid, ours))

    def go(self, hands: Sequence[Hand]) -> None:
        outside = self.outside
        for hand in hands:
            hand.wire.send()
        outside.serve(hands)

    def ending(self) -> Ending:
        found = Ending()
        engine = self._database.ours()
        rows = select(resources.c.kind, resources.c.id, resources.c.status, resources.c.finished, resources.c.asked, resources.c.intent)
        lines = select(history)
        with engine.connect() as connection:
            found.rows.update(
                f"{row.kind} {row.id} {plain(row.status)} finished={row.finished} asked={row.asked} intent={row.intent}"
                for row in connection.execute(rows)
            )
            found.commits.update(
                f"{row.kind} {row.id} {row.source} -> {row.target} ({row.reason}, {row.actor})" for row in connection.execute(lines)
            )
        found.versions.update(f"{one.number} of {one.run}: {one.digest} {one.metrics}" for one in SqlRegistry(engine).list(NAME))
        found.starts.update(f"{job.run} {job.stage}" for job in self.outside.jobs)
        found.stops.update(kind for kind, _ in self.outside.effects if kind == "stop")
        return found

    def problems(self) -> list[str]:
        """What must hold of every life."""
        found = [*self.outside.said]
        if self.outside.stuck:
            found.append(self.outside.stuck)
        bad = [hand.status for hand in self.hands if hand.status not in (0, -signal.SIGKILL)]
        if bad:
            found.append(f"processes ended with {bad}")
        if self.outside.stuck:
            return found
        assert self._rows is not None
        names = [name for kind, name in self.outside.effects if kind == "start"]
        if len(set(names)) != len(names):
            found.append(f"a name was started twice: {names}")
        began = {job.name: job.at for job in self.outside.jobs}
        for record in self._rows.list():
            found += _problems_of(record, self._rows.history(record.id), began)
        return found + self._overlaps()

    def _overlaps(self) -> list[str]:
        """Single flight: of one recommender's runs, never two at a time."""
        with self._database.ours().connect() as connection:
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

    def judged(self, expected: Ending) -> Verdict:
        found = Verdict(other=self.problems(), adopted=self.outside.adopted)
        if self.outside.stuck:
            return found
        ending = self.ending()
        found.lost = ending.missing(expected)
        found.doubled = expected.missing(ending)
        found.effects = sum(ending.starts.values())
        found.stages = sum(expected.starts.values())
        return found


def _problems_of(record: Record[RunStatus], lines: Sequence[HistoryEntry], began: Mapping[str, datetime]) -> list[str]:
    found = []
    if not MACHINE.terminal(record.status.state) or record.intent is not None:
        found.append(f"{record.id} is left as {record.status.state} with the intent {record.intent}")
    sources, path = [line.source for line in lines], [line.target for line in lines]
    if sources != ["", *path[:-1]]:
        found.append(f"the history of {record.id} is no path: {list(zip(sources, path, strict=True))}")
    found += [f"{record.id}: no way leads from {a} to {b}" for a, b in zip(sources[1:], path[1:], strict=True) if not _legal(a, b)]
    stages = [done.stage for done in record.status.stages]
    if len(set(stages)) != len(stages):
        found.append(f"a stage of {record.id} was done twice: {stages}")
    for done in record.status.stages:
        if done.reused or not began:
            continue
        if done.attempt not in began and done.attempt.startswith(RUN):
            found.append(f"{done.attempt} was never started")
        elif done.attempt in began and done.started_at > began[done.attempt]:
            found.append(f"{done.attempt} is said to have begun {done.started_at - began[done.attempt]} after its job did")
    return found


def _legal(source: str, target: str) -> bool:
    return source == target or any((edge.source, edge.target) == (source, target) for edge in MACHINE.edges)


def plain(status: Any) -> Any:
    """A status without times, and without the names of attempts."""
    if isinstance(status, dict):
        return {name: plain(one) for name, one in status.items() if not (name == "attempt" and isinstance(one, str))}
    if isinstance(status, list):
        return [plain(one) for one in status]
    return "a time" if isinstance(status, str) and _TIME.fullmatch(status) else status
