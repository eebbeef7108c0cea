"""Selects the part of a feature graph that a family reads.

`keys` reads only the codes of user and item; `sequence` also the sequence of a user's items, extended by a request's items;
`sequence_and_items` also features of items, except target means, which differ between the training rows of an item. `deep` and `trees` read
everything, and a sequence without a bound in time is extended likewise. `trees` split by the order of numbers, by codes, and by missing
numbers; steps that change no split are dropped:

- `normalise` at the end of a chain: keeps the order. Stays before a `clip`, `bucketise` or other step that uses the number itself.
- `log` at the end of a chain: keeps the order from zero on and merges numbers below zero; a clip at zero is equivalent.
- `fill` and its flag: trees handle missing numbers. Stays before a `normalise` that stays and counts filled numbers.
- `one_hot` of features with one code per row: a split by the code is equal. Stays for several codes per row.

Every split with the step is possible without the step. Without it, trees may also separate numbers that float32 had merged.
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
from pipelines.features.operators.target import CountEncode, TargetEncode

Reads = Literal["keys", "sequence", "sequence_and_items", "deep", "trees"]
READS: tuple[Reads, ...] = ("keys", "sequence", "sequence_and_items", "deep", "trees")

KEYS_ALONE = "the family reads only the keys"
SEQUENCE_ALONE = "the family reads only the keys and the sequence of items"
SEQUENCE_AND_ITEMS = "the family reads only the keys, the sequence of items and features of items without their labels"
ORDER = "the operator keeps the order of the numbers, and trees split by order"
BELOW = "the operator keeps the order of the numbers from zero on: clipped at 0, trees make the same splits"
MISSING = "trees handle missing values directly"
CODES = "a split by the code is equivalent"


@dataclass(frozen=True)
class UnusedFeature:
    """Part of the spec that the family doesn't need."""

    operator: str
    feature: str
    why: str


def read_by(operators: tuple[Operator, ...], reads: Reads, keys: tuple[str, str]) -> tuple[tuple[Operator, ...], tuple[UnusedFeature, ...]]:
    """Returns the operators that a family needs, and the dropped ones."""
    if reads == "deep":
        return _extended(operators), ()
    if reads == "trees":
        read, left = _Trees(operators).read()
        return _extended(read), left
    read = tuple(operator for operator in operators if isinstance(operator, Categorify) and operator.column.name in keys)
    if reads in ("sequence", "sequence_and_items"):
        why = SEQUENCE_ALONE if reads == "sequence" else SEQUENCE_AND_ITEMS
        of = tuple(
            operator
            for operator in operators
            if isinstance(operator, Sequence) or operator in read or (reads == "sequence_and_items" and _describes_items(operator))
        )
        left = tuple(_left(operator, why) for operator in operators if operator not in of)
        return tuple(operator.asking() if isinstance(operator, Sequence) else operator for operator in of), left
    return read, tuple(_left(operator, KEYS_ALONE) for operator in operators if operator not in read)


def _describes_items(operator: Operator) -> bool:
    """Returns whether all features that the operator makes belong to items, and each item has one value of them in all training rows."""
    return all(output.side == "item" for output in operator.outputs) and not isinstance(operator, TargetEncode)


def _extended(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Lets the items of a request follow a sequence of the user's items, if it has the oldest first and no bound in time."""
    return tuple(
        operator.asking() if isinstance(operator, Sequence) and not operator.reverse and not operator.bounded else operator
        for operator in operators
    )


def _left(operator: Operator, why: str) -> UnusedFeature:
    return UnusedFeature(operator.kind, ", ".join(plain(output) for output in operator.outputs), why)


_ORDER, _VALUES, _ALL_VALUES = range(3)
"""What kept operators use of a number: at most its order, its value, or also whether the number is missing."""


@dataclass
class _Trees:
    operators: tuple[Operator, ...]
    looked_at: dict[str, int] = field(default_factory=dict)
    instead: dict[str, Column] = field(default_factory=dict)
    """Replacements for values that are no longer made."""
    made: list[Operator] = field(default_factory=list)
    left: list[UnusedFeature] = field(default_factory=list)

    def read(self) -> tuple[tuple[Operator, ...], tuple[UnusedFeature, ...]]:
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
        """Returns whether to drop an operator; called from last to first, as kept operators record what they use."""
        if isinstance(operator, OneHot) and not operator.column.many:
            return True
        if not isinstance(operator, OneNumber):
            self._look(operator.inputs, _ALL_VALUES)
            return False
        looked = self.looked_at.get(operator.output.name, _ORDER)
        if isinstance(operator, Normalise) and looked == _ORDER:
            return True
        if isinstance(operator, Fill) and looked < _ALL_VALUES and (operator.flag is None or operator.flag.name not in self.looked_at):
            self._look(operator.inputs, looked)
            return True
        counts = isinstance(operator, Normalise | Fill)  # kept, these two use both present and missing numbers
        self._look(operator.inputs, _ALL_VALUES if counts else max(looked, _VALUES))
        return isinstance(operator, Log) and looked == _ORDER

    def _look(self, columns: Iterable[Column], at: int) -> None:
        for column in columns:
            self.looked_at[column.name] = max(at, self.looked_at.get(column.name, _ORDER))

    def _joined(self, operator: Operator) -> Operator:
        """Returns the operator with its current input."""
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
