"""Processes that play cells: each is the world of one cell after the other and forks its control planes, so that a cell costs no
start of Python."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from tests.crash.matrix.cells import ALONE, Cell, Database, Expected, Stage, Verdict
from tests.crash.matrix.databases import Postgres, Sqlite, Templates
from tests.crash.matrix.subject import Subject
from tests.crash.matrix.wire import Wire, pair
from tests.servers.postgres_server import postgres_server

Stages = Mapping[tuple[str, str], Stage]
"""By subject and database."""
Make = Callable[[int, Mapping[str, Expected]], Stages]
"""The stages of the worker of a number, when it is known how each subject's lives end."""


def cores() -> int:
    return len(os.sched_getaffinity(0))


class Workers:
    """Asked over sockets, answered in any order."""

    def __init__(self, count: int, stages: Callable[[int], Stages]) -> None:
        self._wires: list[Wire] = []
        self._pids: list[int] = []
        for number in range(count):
            ours, theirs = pair()
            pid = os.fork()
            if pid == 0:
                try:
                    for wire in (*self._wires, ours):
                        wire.close()
                    _work(theirs, stages(number))
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            theirs.close()
            self._wires.append(ours)
            self._pids.append(pid)

    def play(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Verdict]]:
        waiting = list(reversed(cells))
        under_way: dict[Wire, Cell] = {}
        with DefaultSelector() as selector:
            for wire in self._wires:
                selector.register(wire.socket, EVENT_READ, wire)
                self._next(wire, waiting, under_way)
            while under_way:
                for key, _ in selector.select():
                    wire = key.data
                    answer = wire.receive()
                    if answer is None:
                        raise RuntimeError(f"a worker has died in {under_way[wire]}")
                    done = under_way.pop(wire)
                    self._next(wire, waiting, under_way)
                    yield done, Verdict(**answer)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        for pid in self._pids:
            os.waitpid(pid, 0)

    @staticmethod
    def _next(wire: Wire, waiting: list[Cell], under_way: dict[Wire, Cell]) -> None:
        if waiting:
            under_way[wire] = waiting.pop()
            wire.send(**asdict(under_way[wire]))


def _work(wire: Wire, stages: Stages) -> None:
    while (words := wire.receive()) is not None:
        cell = Cell(**words)
        try:
            stage = stages[cell.subject, cell.database]
            verdict = stage.alone(cell.life, cell.mutant) if cell.move == ALONE else stage.play(cell)
        except Exception:
            verdict = Verdict(other=[traceback.format_exc()])
        wire.send(**asdict(verdict))


@contextlib.contextmanager
def scene(subjects: Iterable[Subject], databases: Sequence[str], folder: Path, begun: Templates) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgres_server()) if "postgresql" in databases else None
        urls: dict[int, str] = {}
        if server is not None:
            urls = {number: server.new_database() for number in range(cores())}

        def make(number: int, expected: Mapping[str, Expected]) -> Stages:
            own = folder / str(number)
            own.mkdir()
            found: dict[str, Database] = {"sqlite": Sqlite(begun, own / "eyas.db")}
            if number in urls:
                found["postgresql"] = Postgres(begun, urls[number])
            return {
                (subject.name, name): Stage(subject, found[name], own / subject.name / name, expected[subject.name])
                for subject in subjects
                for name in databases
            }

        yield make
