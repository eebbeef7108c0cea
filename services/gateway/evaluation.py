"""The filter language over columns: where a tree is true and where it is false; everywhere else it is unknown.

Its meaning is that of shared.domain.expressions, to which a test holds it equal. What needs the user alone is found once, by that
very definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.gateway.attributes import DTYPES, Attributes, Column, Order, known
from services.gateway.keys import Mask
from shared.domain.attributes import Kind, Value, kinds_of
from shared.domain.expressions import (
    LISTS,
    ORDERS,
    SCALARS,
    All,
    Compare,
    Has,
    Holds,
    Member,
    Name,
    Not,
    Operand,
    Some,
    Tree,
    operands,
    truth,
)
from shared.serving.nearest import Rows


@dataclass(frozen=True, eq=False)
class Found:
    true: Mask
    false: Mask


@dataclass(frozen=True, eq=False)
class Columns:
    """A state of the catalogue at some slots, and one user."""

    attributes: Attributes
    slots: Rows
    user: Mapping[str, Value]

    def look(self, tree: Tree) -> Found:
        match tree:
            case Not():
                found = self.look(tree.part)
                return Found(found.false, found.true)
            case All():
                parts = [self.look(part) for part in tree.parts]
                return Found(np.logical_and.reduce([one.true for one in parts]), np.logical_or.reduce([one.false for one in parts]))
            case Some():
                parts = [self.look(part) for part in tree.parts]
                return Found(np.logical_or.reduce([one.true for one in parts]), np.logical_and.reduce([one.false for one in parts]))
        if not any(isinstance(one, Name) and one.source == "item" for one in operands(tree)):
            return self._everywhere(truth(tree, {}, self.user))
        match tree:
            case Compare():
                return self._compare(tree)
            case Member():
                return self._member(tree)
            case Has():
                has = self._has(tree.name.name)
                return Found(has, ~has)
            case Holds():
                values = self._column(tree.operand, "boolean")
                return self._everywhere(None) if values is None else Found(values == 1, values == 0)

    def _everywhere(self, value: bool | None) -> Found:
        return Found(np.full(len(self.slots), value is True), np.full(len(self.slots), value is False))

    def _compare(self, test: Compare) -> Found:
        true, false = np.zeros(len(self.slots), bool), np.zeros(len(self.slots), bool)
        for kind in SCALARS:
            left, right = (self._side(one, kind) for one in (test.left, test.right))
            if left is None or right is None:
                continue
            both = known(left) & known(right)
            if kind == "text" and test.order not in ("==", "!="):
                order = self.attributes.words.order(self.attributes.texts)
                left, right = self._places(test.left, left, order), self._places(test.right, right, order)
            holds = ORDERS[test.order](left, right)
            true |= holds & both
            false |= ~holds & both
        return Found(true, false)

    def _side(self, operand: Operand, kind: Kind) -> Column | None:
        """As values or codes of that kind; what isn't one has none."""
        if _of_item(operand):
            return self._column(operand, kind)
        value = self._constant(operand)
        if value is None or kind not in kinds_of(value):
            return None
        return np.array(self._code(value), DTYPES[kind])

    def _places(self, operand: Operand, codes: Column, order: Order) -> Column:
        if _of_item(operand):
            found: Column = order.places[codes]  # of an unknown one any place: it isn't looked at
            return found
        value = self._constant(operand)
        assert isinstance(value, str)
        return np.array(order.place(value))

    def _member(self, test: Member) -> Found:
        true, false = np.zeros(len(self.slots), bool), np.zeros(len(self.slots), bool)
        for kind, many in LISTS.items():
            found = self._among(test, kind, many)
            if found is not None:
                inside, both = found
                true |= inside & both
                false |= ~inside & both
        return Found(true, false & ~true)

    def _among(self, test: Member, kind: Kind, many: Kind) -> tuple[Mask, Mask] | None:
        """Where the element is in the list, and where both are known."""
        element = self._side(test.element, kind)
        if element is None:
            return None
        if not _of_item(test.container):
            value = self._constant(test.container)
            if value is None or many not in kinds_of(value) or isinstance(value, str | int | float):
                return None
            return np.isin(element, np.array([self._code(one) for one in value], element.dtype)), known(element)
        assert isinstance(test.container, Name)
        pairs = self.attributes.lists.get((test.container.name, many))
        if pairs is None:
            return None
        there = pairs.known[self.slots]
        if not _of_item(test.element):
            return pairs.having(element.item())[self.slots], there
        assert isinstance(test.element, Name)
        column = self.attributes.scalars[test.element.name, kind]
        inside = np.zeros(len(pairs.known), bool)
        inside[pairs.slots[column[pairs.slots] == pairs.values]] = True
        return inside[self.slots], there & known(element)

    def _code(self, value: Value) -> Any:
        return self.attributes.words.code(value) if isinstance(value, str) else value

    def _column(self, operand: Operand, kind: Kind) -> Column | None:
        assert isinstance(operand, Name)
        if operand.name == "available":
            return self.attributes.available[self.slots].astype(np.int8) if kind == "boolean" else None
        column = self.attributes.scalars.get((operand.name, kind))
        return None if column is None else column[self.slots]

    def _constant(self, operand: Operand) -> Value | None:
        return self.user.get(operand.name) if isinstance(operand, Name) else operand.value

    def _has(self, name: str) -> Mask:
        found = np.full(len(self.slots), name == "available")
        for (one, _), column in self.attributes.scalars.items():
            if one == name:
                found |= known(column[self.slots])
        for (one, _), pairs in self.attributes.lists.items():
            if one == name:
                found |= pairs.known[self.slots]
        return found


def _of_item(operand: Operand) -> bool:
    return isinstance(operand, Name) and operand.source == "item"
