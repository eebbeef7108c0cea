"""Plays the matrix, or a seeded sample of it, and writes what came of it.

python -m tests.crash.matrix                      # all of it: every subject, 20 rounds, both databases
python -m tests.crash.matrix --subject rollouts   # only that
python -m tests.crash.matrix --sample 354 --seed 7   # or by EYAS_CRASH_SAMPLE and EYAS_CRASH_SEED
python -m tests.crash.matrix --mutants            # and with one safeguard after the other taken away: each must be noticed
python -m tests.crash.matrix --mutant swap        # only that: what is noticed, in full
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.crash.matrix import mutants
from tests.crash.matrix.cells import ALONE, Cell, Expected, Stage, Verdict, points_of
from tests.crash.matrix.databases import Sqlite, templates
from tests.crash.matrix.rollouts import RolloutSubject
from tests.crash.matrix.runs import RunSubject
from tests.crash.matrix.subject import Move, Subject
from tests.crash.matrix.workers import Workers, cores, scene

ROUNDS = 20
SEED = 20261124
SUBJECTS: Mapping[str, Subject] = {subject.name: subject for subject in (RunSubject(), RolloutSubject())}
DATABASES = ("sqlite", "postgresql")
Say = Callable[[str], None]
_SHOWN = 20
"""Bad cells that are shown in full."""


@dataclass(frozen=True)
class Scope:
    """A subject, and what it consists of."""

    subject: Subject
    moves: Sequence[Move]
    databases: Sequence[str]
    rounds: int
    seed: int

    def cells(self) -> list[Cell]:
        """Every cell; its rounds differ in where the replicas meet, in how they dawdle, and in whether they claim what they lead."""
        meetings = self.subject.meetings
        return [
            Cell(
                self.subject.name,
                database,
                move.life,
                move.number,
                point,
                nth,
                turn,
                self.seed,
                meetings[turn % len(meetings)],
                claims=turn // len(meetings) % 2 == 1,
            )
            for database in self.databases
            for move in self.moves
            for point, nth in points_of(move)
            for turn in range(self.rounds)
        ]


def sampled(cells: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """So many of them, the same for the same seed: every place once before any place twice, in rounds, and on databases, that the seed
    chooses."""
    dice = random.Random(seed)
    rank: Counter[tuple[object, ...]] = Counter()
    found: list[tuple[int, int, Cell]] = []
    for cell in dice.sample(cells, len(cells)):
        place = (cell.subject, cell.life, cell.move, cell.point, cell.nth)
        found.append((rank[place], len(found), cell))
        rank[place] += 1
    return [cell for *_, cell in sorted(found, key=lambda one: one[:2])[:count]]


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    quick = Path("/dev/shm")  # in memory where there is such a place: what dies here are processes, not machines
    chosen = [SUBJECTS[name] for name in options.subject]
    with tempfile.TemporaryDirectory(prefix="eyas-matrix-", dir=quick if os.access(quick, os.W_OK) else None) as name:
        folder = Path(name)
        begun = templates(chosen, folder / "templates")
        with scene(chosen, options.databases, folder, begun) as make:
            expected: dict[str, Expected] = {}
            scopes = []
            for subject in chosen:  # how lives end is asked on SQLite alone: it is the same everywhere
                first = Stage(subject, Sqlite(begun, folder / "eyas.db"), folder / "undisturbed")
                expected[subject.name] = first.expected()
                scopes.append(Scope(subject, first.moves(), options.databases, options.rounds, options.seed))
            workers = Workers(cores(), lambda number: make(number, expected))
            try:
                return _played(workers, scopes, options, say)
            finally:
                workers.close()


def _played(workers: Workers, scopes: Sequence[Scope], options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """By subject. A sample is shared by how many cells each of them has."""
    everything = {scope.subject.name: scope.cells() for scope in scopes}
    whole = sum(map(len, everything.values()))
    report: dict[str, Any] = {}
    for scope in scopes:
        all_cells = everything[scope.subject.name]
        share = round(options.sample * len(all_cells) / whole)
        cells = sampled(all_cells, share, scope.seed) if options.sample else all_cells
        found = {} if options.mutant else _matrix(workers, scope, all_cells, cells, say)
        wanted = [name for name in scope.subject.mutants if options.mutants or name == options.mutant]
        found["mutants"] = {name: _mutant(workers, scope, name, bool(options.mutant), say) for name in wanted}
        report[scope.subject.name] = found
    return report


def _matrix(workers: Workers, scope: Scope, everything: Sequence[Cell], cells: Sequence[Cell], say: Say) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    bad: list[dict[str, Any]] = []
    for database in scope.databases:
        there, ours = ([one for one in some if one.database == database] for some in (everything, cells))
        what = f"{scope.subject.name} on {database}"
        say(f"{what}: {len(ours)} of {len(there)} cells: {len(scope.moves)} moves, seed {scope.seed}, {cores()} workers")
        tables[database] = {"all_cells": len(there), **_tally(workers.play(ours), len(ours), bad, say)}
    return {
        "seed": scope.seed,
        "rounds": scope.rounds,
        "moves": [str(move) for move in scope.moves],
        "databases": tables,
        "bad": bad,
    }


def _tally(found: Iterator[tuple[Cell, Verdict]], count: int, bad: list[dict[str, Any]], say: Say) -> dict[str, Any]:
    began = time.monotonic()
    table: Counter[str] = Counter(dict.fromkeys(("cells", "kills", "lost", "doubled", "wrong"), 0))
    for cell, verdict in found:
        table["cells"] += 1
        table["kills"] += verdict.kills
        table["lost"] += len(verdict.lost)
        table["doubled"] += len(verdict.doubled)
        table["wrong"] += not verdict.good
        table.update(verdict.figures)
        if not verdict.good:
            bad.append({"cell": asdict(cell), "lost": verdict.lost, "doubled": verdict.doubled, "other": verdict.other})
            if len(bad) <= _SHOWN:
                say(f"BAD {cell}: {json.dumps(bad[-1], indent=1)}")
        if table["cells"] == count or table["cells"] % 100 == 0:
            rate = table["cells"] / (time.monotonic() - began)
            say(f"{table['cells']:6} of {count} cells, {rate:.1f} a second, {table['wrong']} bad")
    return {**table, "seconds": round(time.monotonic() - began, 1)}


def _mutant(workers: Workers, scope: Scope, name: str, in_full: bool, say: Say) -> dict[str, Any]:
    """In how many of its cells it was noticed, and what a life that nobody disturbs noticed of it: nothing, if all is well."""
    cells = mutants.cells(scope.subject, name, scope.moves, scope.databases, scope.seed)
    alone = mutants.alone(scope.subject, name, scope.databases, scope.seed)
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
    why = f"{scope.subject.name}: {scope.subject.mutants[name].why}"
    say(f"{why}: noticed in {len(noticed)} of {len(cells)} cells" + "".join(f"\n  not in {one}" for one in overlooked))
    if in_full:
        say(json.dumps(noticed, indent=1))
    return {"cells": len(cells), "noticed": len(noticed), "overlooked": overlooked, "undisturbed": clumsy}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = sorted({name for subject in SUBJECTS.values() for name in subject.mutants})
    parser = argparse.ArgumentParser(prog="python -m tests.crash.matrix", description="the kill matrix")
    parser.add_argument("--subject", nargs="+", choices=SUBJECTS, default=tuple(SUBJECTS))
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--sample", type=int, default=int(os.environ.get("EYAS_CRASH_SAMPLE", "0")), help="so many cells; 0: all")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("EYAS_CRASH_SEED", "0")) or SEED, help="(default: %(default)s)")
    parser.add_argument("--mutants", action="store_true", help="and every mutant, each of which must be noticed")
    parser.add_argument("--mutant", choices=names, default="")
    parser.add_argument("--to", type=Path, default=None, help="a file for the figures, as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    report = run(options, lambda text: print(text, flush=True))  # noqa: T201
    if options.to is not None:
        options.to.parent.mkdir(parents=True, exist_ok=True)
        options.to.write_text(json.dumps(report, indent=1))
    for subject, found in report.items():
        for name, table in found.get("databases", {}).items():
            print(f"{subject} on {name}: {', '.join(f'{count} {what}' for what, count in table.items())}")  # noqa: T201
    print(f"seed {options.seed}")  # noqa: T201
    return 0 if all(map(passed, report.values())) else 1


def passed(found: dict[str, Any]) -> bool:
    blind = [name for name, seen in found["mutants"].items() if seen["overlooked"] or seen["undisturbed"]]
    return not found.get("bad") and not blind


if __name__ == "__main__":
    sys.exit(main())
