"""Slice of the evaluated cases, defined by an expression such as `user_history<=5 and item_history>=10`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.errors import Invalid
from shared.domain.expression_text import parse_expression
from shared.domain.expressions import And, Compare, Constant, Name, Order, Tree

COUNTS: Mapping[str, str] = {
    "user_history": "number of known positives of the user",
    "item_history": "number of positives of the item in the training rows",
}
"""Counts that an expression may compare with a whole number."""


@dataclass(frozen=True)
class CountTest:
    count: str
    order: Order
    bound: int

    def __str__(self) -> str:
        return f"{self.count}{self.order}{self.bound}"


def parse_count_tests(text: str) -> tuple[CountTest, ...]:
    """Returns the tests of an expression; a case is in the slice only if all of them hold."""
    tree = parse_expression(text).tree
    return tuple(_count_test(part, text) for part in (tree.parts if isinstance(tree, And) else (tree,)))


def write_count_tests(tests: tuple[CountTest, ...]) -> str:
    return " and ".join(map(str, tests))


def _count_test(tree: Tree, text: str) -> CountTest:
    match tree:
        case Compare(order, Name("item", name), Constant(int(bound))) if name in COUNTS and not isinstance(bound, bool):
            return CountTest(name, order, bound)
    raise Invalid(f"'{text}': expected {' or '.join(COUNTS)} compared with a whole number, such as user_history<=5; join several by 'and'")
