"""What the check is worth: with one safeguard taken away, it must fail, and not by luck.

Each mutant is played in the cells that its safeguard is there for, with the replicas forced to meet where it matters: every
single one of them must be noticed. A life that nobody disturbs must not notice: so it isn't the mutant's clumsiness that is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.crash.matrix.cells import ALONE, Cell
from tests.crash.matrix.subject import Move, Subject


def cells(subject: Subject, mutant: str, moves: Sequence[Move], databases: Sequence[str], seed: int) -> list[Cell]:
    its = subject.mutants[mutant]
    return [
        Cell(subject.name, database, move.life, move.number, place.point, 1, 0, seed, place.meeting, mutant)
        for database in databases
        for place in its.places
        for move in moves
        if its.moves(move)
    ]


def alone(subject: Subject, mutant: str, databases: Sequence[str], seed: int) -> list[Cell]:
    return [Cell(subject.name, database, subject.ordinary, ALONE, "", 0, 0, seed, "", mutant) for database in databases]
