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
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine, select

from services.store.tables import history, resources
from shared.domain.machine import Machine
from shared.ports import HistoryEntry, Record
from tests.crash.matrix import points
from tests.crash.matrix.outside import Hand, Outside
from tests.crash.matrix.plane import lead, reign
from tests.crash.matrix.points import Doomed, Points, Racing, Watched
from tests.crash.matrix.subject import START, Move, Subject
from tests.crash.matrix.wire import Clock, Wire, pair

REPLICAS = 2
AWAY = 2
"""Seconds of the world's time between a death and those that take over."""
ALONE = -1
"""The move of a cell in which nobody dies."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)")


class Database(Protocol):
    """Where the state is: fresh for each cell, with the hero of its life waiting in it.

    The engine is made once, for what it has compiled is inherited by whoever is forked; its connections are not.
    """

    name: str

    def fresh(self, subject: str, life: str, folder: Path) -> None:
        """Also what was published before, in the folder's `artifacts`."""

    def open(self) -> Engine:
        """For a forked process: with connections of its own."""

    def ours(self) -> Engine:
        """For the world's process: not before its children are forked."""

    def leave(self) -> None:
        """The cell is over."""


def points_of(move: Move) -> Iterator[tuple[str, int]]:
    """A move without effects has no intent: it dies before and after its commit; and where versions are placed on the way to it."""
    for nth in range(1, move.placed + 1):
        yield points.BEFORE_PLACE, nth
        yield points.AFTER_PLACE, nth
    if move.effects:
        yield points.BEFORE_INTENT, 1
        yield points.AFTER_INTENT, 1
        yield from ((points.AFTER_EFFECT, nth) for nth in range(1, move.calls + 1))
    yield points.BEFORE_COMMIT, 1
    yield points.AFTER_COMMIT, 1


@dataclass(frozen=True)
class Cell:
    subject: str
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
    """The control planes claim what they lead, as those of a cluster do; without, all of them lead everything."""

    def __str__(self) -> str:
        words = [self.database, self.life, f"move {self.move}", f"{self.point} {self.nth}", f"round {self.round}", f"seed {self.seed}"]
        words += [f"meeting at '{self.meeting}'"] if self.meeting else []
        words += ["with claims"] if self.claims else []
        return ", ".join([self.subject, *words, *([self.mutant] if self.mutant else [])])


@dataclass
class Verdict:
    """What became of a cell. `lost` and `doubled` say which: rows, commits, what the subject adds."""

    kills: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.other)


Ending = Mapping[str, Counter[str]]
"""What a life leaves behind, but for times and the names of attempts."""
Expected = dict[str, tuple[Ending, list[Move]]]
"""By life: how it ends when nobody dies, and its moves."""


def _missing(here: Ending, there: Ending) -> list[str]:
    """What is there and isn't here, or not so often."""
    return [f"{name}: {what}" for name, theirs in there.items() for what in (theirs - here[name]).elements()]


class Stage:
    """Where a subject's cells are played, one after the other: a database, a folder, a clock."""

    def __init__(self, subject: Subject, database: Database, folder: Path, expected: Expected | None = None) -> None:
        self._subject = subject
        self._database = database
        self._folder = folder
        self._clock = Clock()
        self._lives = subject.lives()
        self._expected = {} if expected is None else expected
        self._warm()

    def _warm(self) -> None:
        """One life in this very process, so that what libraries work out at first use is inherited; what is there is kept from the
        collector's eyes, or every child would copy it."""
        with self._play(self._subject.ordinary) as play:
            engine = self._database.open()
            lead(lambda points: self._subject.plane(engine, str(play.artifacts), self._clock, points, "", False), play.outside)
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
        with self._play(life) as play:
            play.cast(Watched, mutant)
            play.go(play.hands)
            return play.judged(self.undisturbed(life)[0])

    def play(self, cell: Cell) -> Verdict:
        expected, _ = self.undisturbed(cell.life)
        with self._play(cell.life) as play:
            seeds = [f"{cell.seed} {cell.life} {cell.move} {cell.point} {cell.round} {number}" for number in range(REPLICAS)]
            play.cast(lambda wire: Doomed(wire, cell.move, cell.point, cell.nth), cell.mutant, cell.claims)
            for number, seed in enumerate(seeds):
                play.cast(functools.partial(Racing, meeting=cell.meeting, seed=seed, number=number), cell.mutant, cell.claims)
            victim, *replicas = play.hands
            play.go([victim])
            if victim.status != -signal.SIGKILL:
                return Verdict(other=[f"the point was never reached: the victim ended with {victim.status}", *play.outside.said])
            play.outside.pass_by(AWAY)
            play.go(replicas)
            found = play.judged(expected)
            found.kills = 1
            return found

    def _play(self, life: str) -> _Play:
        return _Play(self._subject, self._database, self._folder, self._clock, self._lives[life])

    def _undisturbed(self, life: str) -> tuple[Ending, list[Move]]:
        with self._play(life) as play:
            play.cast(Watched)
            play.go(play.hands)
            ending = play.ending()
            problems = play.problems()
            if problems:
                raise AssertionError(f"{life}, with nobody disturbing it: {problems}")
            moves = [
                Move(life, number, one["source"], one["target"], tuple(one["effects"]), tuple(one["changed"]), one["calls"], one["placed"])
                for number, one in enumerate(play.outside.moves)
            ]
            return ending, moves


class _Play:
    """One world and its processes."""

    def __init__(self, subject: Subject, database: Database, folder: Path, clock: Clock, life: Any) -> None:
        self._subject = subject
        self._database = database
        self._folder = folder
        self._clock = clock
        self._life = life
        self.artifacts = folder / "artifacts"
        self.hands: list[Hand] = []
        self._outside: Outside | None = None

    def __enter__(self) -> _Play:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._database.fresh(self._subject.name, self._life.name, self._folder)
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
            self._outside = self._subject.outside(self._life, self._clock, self._database.ours(), self.artifacts)
            self._outside.begin(START)
        return self._outside

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
                    self._reign(points(theirs), mutant, claims)
                    status = 0
            except BaseException:
                theirs.send(call="said", text=traceback.format_exc())
            finally:
                os._exit(status)
        theirs.close()
        self.hands.append(Hand(pid, ours))

    def _reign(self, points: Points, mutant: str, claims: bool) -> None:
        engine = self._database.open()
        reign(lambda: self._subject.plane(engine, str(self.artifacts), self._clock, points, mutant, claims), self._clock, points)

    def go(self, hands: Sequence[Hand]) -> None:
        outside = self.outside
        for hand in hands:
            hand.wire.send()
        outside.serve(hands)

    def ending(self) -> Ending:
        engine = self._database.ours()
        rows = select(resources.c.kind, resources.c.id, resources.c.status, resources.c.finished, resources.c.request, resources.c.intent)
        lines = select(history)
        with engine.connect() as connection:
            found = {
                "rows": Counter(
                    f"{row.kind} {row.id} {plain(row.status)} finished={row.finished} request={row.request} intent={row.intent}"
                    for row in connection.execute(rows)
                ),
                "commits": Counter(
                    f"{row.kind} {row.id} {row.source} -> {row.target} ({row.reason}, {row.actor})" for row in connection.execute(lines)
                ),
            }
        return found | dict(self._subject.traces(engine, self.outside))

    def problems(self) -> list[str]:
        """What must hold of every life."""
        found = [*self.outside.said]
        bad = [hand.status for hand in self.hands if hand.status not in (0, -signal.SIGKILL)]
        if bad:
            found.append(f"processes ended with {bad}")
        if self.outside.stuck:
            return [*found, self.outside.stuck]
        engine = self._database.ours()
        rows = self._subject.rows(engine)
        for record in rows.list():
            found += _problems_of(self._subject.machine, record, rows.history(record.id))
            found += self._subject.row_problems(record, self.outside)
        return found + self._subject.problems(engine, self.outside)

    def judged(self, expected: Ending) -> Verdict:
        found = Verdict(other=self.problems())
        if self.outside.stuck:
            return found
        ending = self.ending()
        found.lost = _missing(ending, expected)
        found.doubled = _missing(expected, ending)
        found.figures = dict(self._subject.figures(ending, expected, self.outside))
        return found


def _problems_of(machine: Machine, record: Record[Any, Any], lines: Sequence[HistoryEntry]) -> list[str]:
    found = []
    if not machine.terminal(record.status.state) or record.intent is not None:
        found.append(f"{record.id} is left as {record.status.state} with the intent {record.intent}")
    sources, path = [line.source for line in lines], [line.target for line in lines]
    if sources != ["", *path[:-1]]:
        found.append(f"the history of {record.id} is no path: {list(zip(sources, path, strict=True))}")
    edges = {(edge.source, edge.target) for edge in machine.edges}
    return found + [
        f"{record.id}: no way leads from {a} to {b}" for a, b in zip(sources[1:], path[1:], strict=True) if a != b and (a, b) not in edges
    ]


def plain(status: Any) -> Any:
    """A status without times, and without the names of attempts."""
    if isinstance(status, dict):
        return {name: plain(one) for name, one in status.items() if not (name == "attempt" and isinstance(one, str))}
    if isinstance(status, list):
        return [plain(one) for one in status]
    return "a time" if isinstance(status, str) and _TIME.fullmatch(status) else status
