"""Type check of filter expressions: the kinds that each name can have.

Declared names have a known kind. For other names each use narrows the kinds (`price < 20` makes price a number). All expressions of a
filter are checked together, so contradictions are found when the spec is applied.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from shared.domain.attributes import ARTICLES, AVAILABLE, KINDS, Kind, kinds_of
from shared.domain.expression_text import fault
from shared.domain.expressions import LISTS, SCALARS, And, Compare, Constant, Expression, Has, In, IsTrue, Name, Not, Operand, Or, Tree

Kinds = frozenset[Kind]
_ANY: Kinds = frozenset(KINDS)
_ORDERED: Kinds = frozenset({"number", "text"})


def check_kinds(expressions: Sequence[Expression], attributes: Mapping[str, Kind], context: Mapping[str, Kind]) -> None:
    """Raises Invalid for expressions that can never be true. If attributes (or context names) are declared, no others are allowed."""
    checker = _KindChecker(attributes, context)
    for expression in expressions:
        for name in sorted(expression.names(), key=lambda name: name.column):
            checker.declared(expression.text, name)
    while checker.narrowed:
        checker.narrowed = False
        for expression in expressions:
            for test in _tests(expression.tree):
                checker.look(expression.text, test)


def _tests(tree: Tree) -> Iterator[Compare | In | IsTrue]:
    match tree:
        case Compare() | In() | IsTrue():
            yield tree
        case Not():
            yield from _tests(tree.part)
        case And() | Or():
            for part in tree.parts:
                yield from _tests(part)
        case Has():
            pass


class _KindChecker:
    def __init__(self, attributes: Mapping[str, Kind], context: Mapping[str, Kind]) -> None:
        self._declared = {"item": {**attributes, AVAILABLE: "boolean"}, "user": dict(context)}
        self._closed = {"item": bool(attributes), "user": bool(context)}
        self._kinds: dict[tuple[str, str], Kinds] = {
            (source, name): frozenset({kind}) for source, kinds in self._declared.items() for name, kind in kinds.items()
        }
        self.narrowed = True

    def declared(self, text: str, name: Name) -> None:
        kinds = self._declared[name.source]
        if not self._closed[name.source] or name.name in kinds:
            return
        near = difflib.get_close_matches(name.name, kinds, n=1, cutoff=0.5)
        place = "serve.attributes" if name.source == "item" else "serve.context"
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(kinds))}"
        raise fault(text, name.column, f"{place} declares no '{name.name}': {hint}")

    def look(self, text: str, test: Compare | In | IsTrue) -> None:
        match test:
            case IsTrue():
                self._only(text, test.operand, frozenset({"boolean"}), "a condition must be true or false: compare this value")
            case Compare():
                self._compare(text, test)
            case In():
                self._member(text, test)

    def _compare(self, text: str, test: Compare) -> None:
        for side in (test.left, test.right):
            self._only(text, side, frozenset(SCALARS), f"'{test.order}' compares single values: use 'in' or 'contains' with lists")
            if test.order not in ("==", "!="):
                self._only(text, side, _ORDERED, f"'{test.order}' compares only numbers or texts")
        left, right = self._of(test.left), self._of(test.right)
        if not left & right:
            message = f"'{test.order}' compares {_described(test.left, left)} with {_described(test.right, right)}: different types"
            raise fault(text, test.column, message)
        for side in (test.left, test.right):
            self._narrow(side, left & right)

    def _member(self, text: str, test: In) -> None:
        self._only(text, test.element, _ORDERED, "a list holds numbers or texts")
        self._only(text, test.container, frozenset(LISTS.values()), "'in' and 'contains' need a list: use == with single values")
        element, container = self._of(test.element), self._of(test.container)
        kinds = frozenset(kind for kind in element if kind in LISTS and LISTS[kind] in container)
        if not kinds:
            raise fault(text, test.column, f"{_described(test.container, container)} never holds {_described(test.element, element)}")
        self._narrow(test.element, kinds)
        self._narrow(test.container, frozenset(LISTS[kind] for kind in kinds))

    def _only(self, text: str, operand: Operand, wanted: Kinds, message: str) -> None:
        kinds = self._of(operand)
        if not kinds & wanted:
            raise fault(text, operand.column, f"{_described(operand, kinds)}: {message}")
        self._narrow(operand, kinds & wanted)

    def _of(self, operand: Operand) -> Kinds:
        if isinstance(operand, Constant):
            return kinds_of(operand.value)
        return self._kinds.get((operand.source, operand.name), _ANY)

    def _narrow(self, operand: Operand, kinds: Kinds) -> None:
        if isinstance(operand, Name) and self._of(operand) != kinds:
            self._kinds[operand.source, operand.name] = kinds
            self.narrowed = True


def _described(operand: Operand, kinds: Kinds) -> str:
    named = " or ".join(ARTICLES[kind] for kind in KINDS if kind in kinds)
    return f"{operand} ({named})" if isinstance(operand, Constant) else f"'{operand}' ({named})"
