"""What the check is worth: with one safeguard taken away, it must fail, and not by luck.

Each mutant is played in the cells that its safeguard is there for, with the replicas forced to meet where it matters: every
single one of them must be noticed. A life that nobody disturbs must not notice: so it isn't the mutant's clumsiness that is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.crash.matrix.cells import Cell, Move
from tests.crash.matrix.plane import AFTER_EFFECT, AFTER_INTENT, BEFORE_COMMIT, BEFORE_INTENT, CALL


@dataclass(frozen=True)
class Place:
    """Where a victim dies and where the replicas wait for each other."""

    point: str
    meeting: str = ""


PLACES: Mapping[str, Sequence[Place]] = {
    # another life doesn't find the job that was started
    "names": (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)),
    # both replicas read the same revision, and both write
    "swap": (Place(BEFORE_INTENT, BEFORE_COMMIT), Place(AFTER_INTENT, BEFORE_COMMIT), Place(BEFORE_COMMIT, BEFORE_COMMIT)),
    # the stage is decided anew, later than its job began: what is cut by that time (events, the limit) would be another
    "intent": (Place(AFTER_EFFECT), Place(BEFORE_COMMIT)),
    "order": (Place(BEFORE_INTENT),),
    # the job that is there is started again, by whoever takes over, and by both of them
    "adoption": (Place(AFTER_EFFECT), Place(BEFORE_COMMIT), Place(AFTER_INTENT, CALL)),
}
WHY: Mapping[str, str] = {
    "names": "attempts have no deterministic names",
    "swap": "compare-and-swap is removed",
    "intent": "intents are not kept",
    "order": "effects come before the intent",
    "adoption": "a job that is there is not adopted",
}


def cells(mutant: str, moves: Sequence[Move], databases: Sequence[str], seed: int) -> list[Cell]:
    """The stages that follow each other in a life without trouble: each of their starts."""
    starts = [move for move in moves if move.life == "registered" and move.effects == ("start_stage",)]
    return [
        Cell(database, move.life, move.number, place.point, 1, 0, seed, place.meeting, mutant)
        for database in databases
        for place in PLACES[mutant]
        for move in starts
    ]
