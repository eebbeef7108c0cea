"""Evaluates filter expressions over columns: where a tree is true, false or (neither) unknown.

The meaning equals shared.domain.expressions, which a test checks. Parts without item attributes are evaluated once, by that definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.gateway.attributes import DTYPES, Attributes, Column, TextOrder, has_value
from services.gateway.sorted_keys import Mask
from shared.domain.attributes import Kind, Value, kinds_of
from shared.domain.expressions import (
    LISTS,
    ORDERS,
    SCALARS,
    And,
    Compare,
    Has,
    In,
    IsTrue,
    Name,
    Not,
    Operand,
    Or,
    Tree,
    operands,
    truth,
)
from shared.serving.nearest import Rows


@dataclass(frozen=True, eq=False)
class TruthMasks:
    true: Mask
    false: Mask


@dataclass(frozen=True, eq=False)
class FilterColumns:
    """One state of the catalogue at some slots, and one user's context."""

    attributes: Attributes
    slots: Rows
    user: Mapping[str, Value]

    def look(self, tree: Tree) -> TruthMasks:
        match tree:
            case Not():
                negated = self.look(tree.part)
                return TruthMasks(negated.false, negated.true)
            case And():
                parts = [self.look(part) for part in tree.parts]
                return TruthMasks(
                    np.logical_and.reduce([masks.true for masks in parts]), np.logical_or.reduce([masks.false for masks in parts])
                )
            case Or():
                parts = [self.look(part) for part in tree.parts]
                return TruthMasks(
                    np.logical_or.reduce([masks.true for masks in parts]), np.logical_and.reduce([masks.false for masks in parts])
                )
        if not any(isinstance(operand, Name) and operand.source == "item" for operand in operands(tree)):
            return self._everywhere(truth(tree, {}, self.user))
        match tree:
            case Compare():
                return self._compare(tree)
            case In():
                return self._member(tree)
            case Has():
                has = self._has(tree.name.name)
                return TruthMasks(has, ~has)
            case IsTrue():
                values = self._column(tree.operand, "boolean")
                return self._everywhere(None) if values is None else TruthMasks(values == 1, values == 0)

    def _everywhere(self, value: bool | None) -> TruthMasks:
        return TruthMasks(np.full(len(self.slots), value is True), np.full(len(self.slots), value is False))

    def _compare(self, test: Compare) -> TruthMasks:
        true, false = np.zeros(len(self.slots), bool), np.zeros(len(self.slots), bool)
        for kind in SCALARS:
            left, right = (self._side(operand, kind) for operand in (test.left, test.right))
            if left is None or right is None:
                continue
            both = has_value(left) & has_value(right)
            if kind == "text" and test.order not in ("==", "!="):
                order = self.attributes.words.order(self.attributes.texts)
                left, right = self._places(test.left, left, order), self._places(test.right, right, order)
            holds = ORDERS[test.order](left, right)
            true |= holds & both
            false |= ~holds & both
        return TruthMasks(true, false)

    def _side(self, operand: Operand, kind: Kind) -> Column | None:
        """Returns an operand as values or codes of this kind; None if the operand has another kind."""
        if _of_item(operand):
            return self._column(operand, kind)
        value = self._constant(operand)
        if value is None or kind not in kinds_of(value):
            return None
        return np.array(self._code(value), DTYPES[kind])

    def _places(self, operand: Operand, codes: Column, order: TextOrder) -> Column:
        if _of_item(operand):
            places: Column = order.places[codes]  # unknown codes get any place: `both` masks them
            return places
        value = self._constant(operand)
        assert isinstance(value, str)
        return np.array(order.place(value))

    def _member(self, test: In) -> TruthMasks:
        true, false = np.zeros(len(self.slots), bool), np.zeros(len(self.slots), bool)
        for kind, many in LISTS.items():
            membership = self._among(test, kind, many)
            if membership is not None:
                inside, both = membership
                true |= inside & both
                false |= ~inside & both
        return TruthMasks(true, false & ~true)

    def _among(self, test: In, kind: Kind, many: Kind) -> tuple[Mask, Mask] | None:
        """Returns where the element is in the list, and where both are known."""
        element = self._side(test.element, kind)
        if element is None:
            return None
        if not _of_item(test.container):
            value = self._constant(test.container)
            if value is None or many not in kinds_of(value) or isinstance(value, str | int | float):
                return None
            return np.isin(element, np.array([self._code(member) for member in value], element.dtype)), has_value(element)
        assert isinstance(test.container, Name)
        pairs = self.attributes.lists.get((test.container.name, many))
        if pairs is None:
            return None
        there = pairs.has_value[self.slots]
        if not _of_item(test.element):
            return pairs.having(element.item())[self.slots], there
        assert isinstance(test.element, Name)
        column = self.attributes.scalars[test.element.name, kind]
        inside = np.zeros(len(pairs.has_value), bool)
        inside[pairs.slots[column[pairs.slots] == pairs.values]] = True
        return inside[self.slots], there & has_value(element)

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
        mask = np.full(len(self.slots), name == "available")
        for (attribute, _), column in self.attributes.scalars.items():
            if attribute == name:
                mask |= has_value(column[self.slots])
        for (attribute, _), pairs in self.attributes.lists.items():
            if attribute == name:
                mask |= pairs.has_value[self.slots]
        return mask


def _of_item(operand: Operand) -> bool:
    return isinstance(operand, Name) and operand.source == "item"
