"""What of a graph a family of models reads: one spec of features, and for each family what it can learn from.

`keys` take the codes of the user and of the item alone, `sequence` the sequence of a user's items as well, which the items of a request
follow on. `deep` take everything. `trees` split rows by the order of numbers, by codes as
categories and by whether a number is there at all; what changes none of these splits is left out:

- `normalise` at the end of a chain: it keeps the order. Where a `clip`, a `bucketise` or another step behind it looks at the number itself,
  it stays.
- `log` at the end of a chain: it keeps the order from zero on, and what is below zero is one number; a clip at zero says the same.
- `fill`, and its flag: a tree takes what is missing as it is. Where a `normalise` that stays counts what was filled, it stays.
- `one_hot` of features with one code a row: a split by the code is the same one. Of several codes a row it stays.

So whatever a tree can split with the step, it can split without. The other way round it can tell apart what float32 had merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from pipelines.features.columns import Column, Raw
from pipelines.features.operators.base import Operator, plain
from pipelines.features.operators.categorify import Categorify
from pipelines.features.operators.codes import OneHot
from pipelines.features.operators.numbers import Clip, Fill, Log, Normalise, OneNumber, Plain
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import CountEncode

Reads = Literal["keys", "sequence", "deep", "trees"]
READS: tuple[Reads, ...] = ("keys", "sequence", "deep", "trees")

KEYS_ALONE = "the family reads the keys alone"
SEQUENCE_ALONE = "the family reads the keys and the sequence of items alone"
ORDER = "it keeps the order of the numbers, and a tree splits by that"
BELOW = "it keeps the order of the numbers from zero on: clipped at 0, a tree makes the same splits"
MISSING = "a tree takes what is missing as it is"
CODES = "a split by the code is the same one"


@dataclass(frozen=True)
class Left:
    """What the spec says, and the family doesn't need."""

    operator: str
    feature: str
    why: str


def read_by(operators: tuple[Operator, ...], reads: Reads, keys: tuple[str, str]) -> tuple[tuple[Operator, ...], tuple[Left, ...]]:
    """The operators that a family needs, and what was left out."""
    if reads == "deep":
        return operators, ()
    if reads == "trees":
        return _Trees(operators).read()
    read = tuple(operator for operator in operators if isinstance(operator, Categorify) and operator.column.name in keys)
    if reads == "sequence":
        of = tuple(operator for operator in operators if isinstance(operator, Sequence))
        left = tuple(_left(operator, SEQUENCE_ALONE) for operator in operators if operator not in (*read, *of))
        return (*read, *(sequence.asking() for sequence in of)), left
    return read, tuple(_left(operator, KEYS_ALONE) for operator in operators if operator not in read)


def _left(operator: Operator, why: str) -> Left:
    return Left(operator.kind, ", ".join(plain(output) for output in operator.outputs), why)


_ORDER, _VALUES, _WHOLE = range(3)
"""What is looked at of a number by whatever stays: its order at most, the number where there is one, or that it is missing too."""


@dataclass
class _Trees:
    operators: tuple[Operator, ...]
    looked_at: dict[str, int] = field(default_factory=dict)
    instead: dict[str, Column] = field(default_factory=dict)
    """Of a value that nobody makes any more."""
    made: list[Operator] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def read(self) -> tuple[tuple[Operator, ...], tuple[Left, ...]]:
        goes = {at for at in reversed(range(len(self.operators))) if self._goes(self.operators[at])}
        stays = {
            plain(out)
            for at, operator in enumerate(self.operators)
            if at not in goes or isinstance(operator, Log)
            for out in operator.outputs
        }
        for at, operator in enumerate(self.operators):
            if at in goes:
                self._leave_out(operator, stays)
            else:
                self.made.append(self._joined(operator))
        return tuple(self.made), tuple(self.left)

    def _goes(self, operator: Operator) -> bool:
        """Asked from the last one to the first: what stays says what it looks at."""
        if isinstance(operator, OneHot) and not operator.column.many:
            return True
        if not isinstance(operator, OneNumber):
            self._look(operator.inputs, _WHOLE)
            return False
        looked = self.looked_at.get(operator.output.name, _ORDER)
        if isinstance(operator, Normalise) and looked == _ORDER:
            return True
        if isinstance(operator, Fill) and looked < _WHOLE and (operator.flag is None or operator.flag.name not in self.looked_at):
            self._look(operator.inputs, looked)
            return True
        counts = isinstance(operator, Normalise | Fill)  # whoever stays of them looks at what is there, and at what isn't
        self._look(operator.inputs, _WHOLE if counts else max(looked, _VALUES))
        return isinstance(operator, Log) and looked == _ORDER

    def _look(self, columns: Iterable[Column], at: int) -> None:
        for column in columns:
            self.looked_at[column.name] = max(at, self.looked_at.get(column.name, _ORDER))

    def _joined(self, operator: Operator) -> Operator:
        """To what its input is made of now."""
        return replace(operator, source=self._now(operator.source)) if isinstance(operator, OneNumber) else operator

    def _now(self, column: Column) -> Column:
        return self.instead.get(column.name, column)

    def _leave_out(self, operator: Operator, stays: set[str]) -> None:
        if not isinstance(operator, OneNumber):
            self.left.append(_left(operator, CODES))
            return
        source, name = self._now(operator.source), plain(operator.output)
        if isinstance(operator, Log) and not self._never_negative(source):
            self.left.append(_left(operator, BELOW))
            self.made.append(Clip(source, operator.output, operator.table, low=0.0))
            return
        self.left.append(_left(operator, MISSING if isinstance(operator, Fill) else ORDER))
        if isinstance(source, Raw) and name not in stays | {plain(out) for made in self.made for out in made.outputs}:
            self.made.append(Plain(source, operator.output, operator.table))
            source = operator.output
        self.instead[operator.output.name] = source

    def _never_negative(self, source: Column) -> bool:
        maker = next((operator for operator in self.made if source in operator.outputs), None)
        return isinstance(maker, CountEncode) or (isinstance(maker, Clip) and maker.low is not None and maker.low >= 0)
