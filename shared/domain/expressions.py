"""The filter language: conditions on an item's attributes and the request's context that decide whether the item is shown.

    age_rating <= user.age
    region == user.region or 'world' in regions
    price < 20 and not adult
    not has(genres) or not genres contains 'Horror'

A name is an attribute of the item; `user.NAME` is a value of the request's context. A comparison with a missing value, or with a value of
another kind, is unknown: neither true nor false. `not` of unknown is unknown, `and` is false if one side is false, and `or` is true if one
side is true. An item is shown only if the whole expression is true. `has(name)` is false for a missing value, never unknown.

This module has the syntax tree and its evaluation on plain values; the parser is in expression_text, the type check in expression_kinds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.domain.attributes import Kind, Value, kinds_of

Source = Literal["item", "user"]
Order = Literal["<", "<=", ">", ">=", "==", "!="]
Truth = bool | None
"""None: unknown."""

ORDERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
SCALARS: tuple[Kind, ...] = ("number", "text", "boolean")
LISTS: Mapping[Kind, Kind] = {"number": "numbers", "text": "texts"}
"""Kind of list that holds values of a kind."""


@dataclass(frozen=True)
class Name:
    source: Source
    name: str
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.name if self.source == "item" else f"user.{self.name}"


@dataclass(frozen=True)
class Constant:
    value: Value
    column: int = field(default=0, compare=False)

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return str(self.value).lower()
        return repr(list(self.value) if isinstance(self.value, tuple) else self.value)


Operand = Name | Constant


@dataclass(frozen=True)
class Compare:
    order: Order
    left: Operand
    right: Operand
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class In:
    """`element in container`, also when written with `contains`."""

    element: Operand
    container: Operand
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Has:
    name: Name
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class IsTrue:
    """Operand that is true or false by itself."""

    operand: Operand
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Not:
    part: Tree


@dataclass(frozen=True)
class And:
    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Tree, ...]


Tree = Compare | In | Has | IsTrue | Not | And | Or


@dataclass(frozen=True)
class Expression:
    text: str
    tree: Tree

    def names(self) -> frozenset[Name]:
        return frozenset(operand for operand in operands(self.tree) if isinstance(operand, Name))


def operands(tree: Tree) -> Iterator[Operand]:
    match tree:
        case Compare():
            yield from (tree.left, tree.right)
        case In():
            yield from (tree.element, tree.container)
        case Has():
            yield tree.name
        case IsTrue():
            yield tree.operand
        case Not():
            yield from operands(tree.part)
        case And() | Or():
            for part in tree.parts:
                yield from operands(part)


def equal_texts(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yields item attribute and text of each test whether the attribute equals, or contains, the text."""
    pairs: tuple[tuple[Operand, Operand], ...] = ()
    match tree:
        case Compare(order="==" | "!=", left=left, right=right) | In(element=left, container=right):
            pairs = ((left, right), (right, left))
        case Not():
            yield from equal_texts(tree.part)
        case And() | Or():
            for part in tree.parts:
                yield from equal_texts(part)
    for name, constant in pairs:
        if isinstance(name, Name) and name.source == "item" and isinstance(constant, Constant):
            values = constant.value if isinstance(constant.value, tuple) else (constant.value,)
            yield from ((name.name, value) for value in values if isinstance(value, str))


def truth(tree: Tree, item: Mapping[str, Value], user: Mapping[str, Value]) -> Truth:
    """Evaluates the tree for one item. This is the reference: the evaluation of whole columns must agree with it."""
    match tree:
        case Compare():
            left, right = _value(tree.left, item, user), _value(tree.right, item, user)
            if left is None or right is None or not kinds_of(left) & kinds_of(right) & set(SCALARS):
                return None
            return bool(ORDERS[tree.order](left, right))
        case In():
            element, container = _value(tree.element, item, user), _value(tree.container, item, user)
            if element is None or container is None:
                return None
            lists = {LISTS.get(kind) for kind in kinds_of(element)} & kinds_of(container)
            return element in container if lists and not isinstance(container, str | int | float) else None
        case Has():
            return _value(tree.name, item, user) is not None
        case IsTrue():
            value = _value(tree.operand, item, user)
            return value if isinstance(value, bool) else None
        case Not():
            inner = truth(tree.part, item, user)
            return None if inner is None else not inner
        case And():
            return _combined(tree.parts, item, user, False)
        case Or():
            return _combined(tree.parts, item, user, True)


def _combined(parts: tuple[Tree, ...], item: Mapping[str, Value], user: Mapping[str, Value], decisive: bool) -> Truth:
    truths = [truth(part, item, user) for part in parts]
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def _value(operand: Operand, item: Mapping[str, Value], user: Mapping[str, Value]) -> Value | None:
    if isinstance(operand, Constant):
        return operand.value
    return (item if operand.source == "item" else user).get(operand.name)
