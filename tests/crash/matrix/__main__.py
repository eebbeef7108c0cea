"""Plays the matrix, or a seeded sample of it, and writes what came of it.

    python -m tests.crash.matrix                      # all of it: 20 rounds, both databases
    python -m tests.crash.matrix --sample 354 --seed 7   # or by EYAS_CRASH_SAMPLE and EYAS_CRASH_SEED
    python -m tests.crash.matrix --mutants            # and with one safeguard after the other taken away: each must be noticed
    python -m tests.crash.matrix --mutant swap        # only that: what is noticed, in full

One process prepares everything, then forks a worker a core; each worker is the world of one cell after the other and forks its
control planes, so that a cell costs no start of Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from tests.crash.matrix import mutants
from tests.crash.matrix.cells import Cell, Database, Expected, Move, Stage, Verdict
from tests.crash.matrix.databases import Postgres, Sqlite, Template, templates
from tests.crash.matrix.plane import MEETINGS, MUTANTS
from tests.crash.matrix.wire import Wire, pair
from tests.postgres import postgres_server

ROUNDS = 20
ALONE = -1
"""The move of a cell in which nobody dies."""
Say = Callable[[str], None]
DATABASES = ("sqlite", "postgresql")
_SHOWN = 20
"""Bad cells that are shown in full."""


def plan(moves: Sequence[Move], database: str, rounds: int, seed: int) -> list[Cell]:
    """Every cell; its rounds differ in where the replicas meet, in how they dawdle, and in whether they claim rows (every other one)."""
    return [
        Cell(database, move.life, move.number, point, nth, turn, seed, MEETINGS[turn % len(MEETINGS)], claims=turn % 2 == 1)
        for move in moves
        for point, nth in move.points()
        for turn in range(rounds)
    ]


def sampled(cells: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """So many of them, the same for the same seed: every place once before any place twice, in rounds that the seed chooses."""
    dice = random.Random(seed)
    rank: Counter[tuple[object, ...]] = Counter()
    found: list[tuple[int, int, Cell]] = []
    for cell in dice.sample(cells, len(cells)):
        place = (cell.life, cell.move, cell.point, cell.nth)
        found.append((rank[place], len(found), cell))
        rank[place] += 1
    return [cell for *_, cell in sorted(found, key=lambda one: one[:2])[:count]]


Make = Callable[[int, Expected], dict[str, Stage]]
"""The stages of the worker of a number, one a database."""


class Workers:
    """Processes that play cells; asked over sockets, answered in any order."""

    def __init__(self, count: int, stages: Callable[[int], dict[str, Stage]]) -> None:
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


def _work(wire: Wire, stages: dict[str, Stage]) -> None:
    while (words := wire.receive()) is not None:
        cell = Cell(**words)
        try:
            stage = stages[cell.database]
            verdict = stage.alone(cell.life, cell.mutant) if cell.move == ALONE else stage.play(cell)
        except Exception:
            verdict = Verdict(other=[traceback.format_exc()])
        wire.send(**asdict(verdict))


@contextlib.contextmanager
def scene(databases: Sequence[str], folder: Path, begun: Mapping[str, Template]) -> Iterator[Make]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(postgres_server()) if "postgresql" in databases else None
        urls: dict[int, str] = {}
        if server is not None:
            urls = {number: server.new_database() for number in range(_cores())}

        def make(number: int, expected: Expected) -> dict[str, Stage]:
            own = folder / str(number)
            own.mkdir()
            found: dict[str, Database] = {"sqlite": Sqlite(begun, own / "eyas.db")}
            if number in urls:
                found["postgresql"] = Postgres(begun, urls[number])
            return {name: Stage(found[name], own / name, expected) for name in databases if name in found}

        yield make


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    quick = Path("/dev/shm")  # in memory where there is such a place: what dies here are processes, not machines
    with tempfile.TemporaryDirectory(prefix="eyas-matrix-", dir=quick if os.access(quick, os.W_OK) else None) as name:
        folder = Path(name)
        begun = templates(folder / "templates")
        with scene(options.databases, folder, begun) as make:
            # how lives end is asked on SQLite alone: it is the same everywhere
            first = Stage(Sqlite(begun, folder / "eyas.db"), folder / "undisturbed")
            expected, moves = first.expected(), first.moves()
            workers = Workers(_cores(), lambda number: make(number, expected))
            try:
                report = {} if options.mutant else _matrix(workers, moves, options, say)
                wanted = [options.mutant] if options.mutant else MUTANTS if options.mutants else ()
                report["mutants"] = {mutant: _mutant(workers, mutant, moves, options, say) for mutant in wanted}
                return report
            finally:
                workers.close()


def _matrix(workers: Workers, moves: Sequence[Move], options: argparse.Namespace, say: Say) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    bad: list[dict[str, Any]] = []
    share = -(-options.sample // len(options.databases))
    for database in options.databases:
        everything = plan(moves, database, options.rounds, options.seed)
        cells = sampled(everything, share, options.seed) if options.sample else everything
        say(f"{database}: {len(cells)} of {len(everything)} cells: {len(moves)} moves, seed {options.seed}, {_cores()} workers")
        tables[database] = {"all_cells": len(everything), **_tally(workers.play(cells), len(cells), bad, say)}
    return {
        "seed": options.seed,
        "rounds": options.rounds,
        "moves": [str(move) for move in moves],
        "databases": tables,
        "bad": bad,
    }


def _tally(found: Iterator[tuple[Cell, Verdict]], count: int, bad: list[dict[str, Any]], say: Say) -> dict[str, Any]:
    began = time.monotonic()
    table: dict[str, Any] = dict.fromkeys(("cells", "kills", "lost", "doubled", "wrong", "effects", "stages", "adopted"), 0)
    for cell, verdict in found:
        table["cells"] += 1
        for name in ("kills", "effects", "stages", "adopted"):
            table[name] += getattr(verdict, name)
        table["lost"] += len(verdict.lost)
        table["doubled"] += len(verdict.doubled)
        table["wrong"] += not verdict.good
        if not verdict.good:
            bad.append({"cell": asdict(cell), "lost": verdict.lost, "doubled": verdict.doubled, "other": verdict.other})
            if len(bad) <= _SHOWN:
                say(f"BAD {cell}: {json.dumps(bad[-1], indent=1)}")
        if table["cells"] == count or table["cells"] % 100 == 0:
            rate = table["cells"] / (time.monotonic() - began)
            say(f"{table['cells']:6} of {count} cells, {rate:.1f} a second, {table['wrong']} bad")
    return table | {"seconds": round(time.monotonic() - began, 1)}


def _mutant(workers: Workers, name: str, moves: Sequence[Move], options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """In how many of its cells it was noticed, and what a life that nobody disturbs noticed of it: nothing, if all is well."""
    cells = mutants.cells(name, moves, options.databases, options.seed)
    alone = [Cell(database, "registered", ALONE, "", 0, 0, options.seed, "", name) for database in options.databases]
    noticed: list[dict[str, Any]] = []
    overlooked: list[str] = []
    clumsy: list[str] = []
    for cell, verdict in workers.play([*cells, *alone]):
        if cell.move == ALONE:
            clumsy += [*verdict.lost, *verdict.doubled, *verdict.other]
        elif verdict.good:
            overlooked.append(str(cell))
        else:
            noticed.append({"cell": str(cell), "lost": verdict.lost, "doubled": verdict.doubled, "other": verdict.other})
    say(f"{mutants.WHY[name]}: noticed in {len(noticed)} of {len(cells)} cells" + "".join(f"\n  not in {one}" for one in overlooked))
    if options.mutant:
        say(json.dumps(noticed, indent=1))
    return {"cells": len(cells), "noticed": len(noticed), "overlooked": overlooked, "undisturbed": clumsy}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description="the kill matrix")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sample", type=int, default=int(os.environ.get("EYAS_CRASH_SAMPLE", "0")), help="so many cells; 0: all")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("EYAS_CRASH_SEED", "0")), help="0: any")
    parser.add_argument("--mutants", action="store_true", help="and every mutant, each of which must be noticed")
    parser.add_argument("--mutant", choices=MUTANTS, default="")
    parser.add_argument("--to", type=Path, default=None, help="a file for the figures, as JSON")
    options = parser.parse_args(arguments)
    options.seed = options.seed or secrets.randbelow(1_000_000)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    report = run(options, lambda text: print(text, flush=True))  # noqa: T201
    if options.to is not None:
        options.to.parent.mkdir(parents=True, exist_ok=True)
        options.to.write_text(json.dumps(report, indent=1))
    for name, table in report.get("databases", {}).items():
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in table.items())}")  # noqa: T201
    print(f"seed {options.seed}")  # noqa: T201
    return 0 if passed(report) else 1


def passed(report: dict[str, Any]) -> bool:
    blind = [name for name, found in report["mutants"].items() if found["overlooked"] or found["undisturbed"]]
    return not report.get("bad") and not blind


if __name__ == "__main__":
    sys.exit(main())
