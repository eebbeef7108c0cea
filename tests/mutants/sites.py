"""Mutation sites: places in the product's source where one small change makes a wrong program.

A site is a comparison, a number or truth value, a returned value, or a statement, inside a function. Text that people read
(strings, logging, errors) is no site: changing it does not change a decision.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = ("comparison", "constant", "return", "statement")
_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_LOGGERS = ("log", "logger", "_log", "_logger", "LOG", "logging")


@dataclass(frozen=True)
class Mutant:
    """One changed place: `before` is the source text at `line`, `after` what stands there instead."""

    group: str
    path: str
    function: str
    kind: str
    line: int
    column: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.kind}"


def mutants_of(root: Path, path: str, group: str) -> list[Mutant]:
    """Every mutant of one file, in the order of its lines."""
    source = (root / path).read_text()
    lines = source.splitlines()
    mutants = []
    for function, node in _function_nodes(ast.parse(source)):
        for kind, place, after in _changes(node):
            if place.lineno == place.end_lineno:
                before = lines[place.lineno - 1].encode()[place.col_offset : place.end_col_offset].decode()
                mutants.append(Mutant(group, path, function, kind, place.lineno, place.col_offset, before, after.format(before)))
    return sorted(set(mutants), key=lambda mutant: (mutant.line, mutant.column, mutant.after))


def mutate(source: str, mutant: Mutant) -> str:
    """The file's text with the mutant in it. `ValueError` if the line no longer reads as it did when the mutant was drawn."""
    lines = source.splitlines(keepends=True)
    line = lines[mutant.line - 1].encode() if mutant.line <= len(lines) else b""
    before, end = mutant.before.encode(), mutant.column + len(mutant.before.encode())
    if line[mutant.column : end] != before:
        raise ValueError(f"{mutant.name}: the line has changed; draw the list again: python -m tests.mutants --draw")
    lines[mutant.line - 1] = (line[: mutant.column] + mutant.after.encode() + line[end:]).decode()
    return "".join(lines)


def _function_nodes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each node inside a function, with the function's qualified name; annotations, defaults and decorators are left out."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            for statement in child.body:
                yield from ((name, node) for node in _decisions(statement))
        elif isinstance(child, ast.ClassDef):
            yield from _function_nodes(child, f"{prefix}{child.name}.")


def _decisions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Raise | ast.Assert) or _is_text(node):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _decisions(child)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    if isinstance(call, ast.Constant):
        return True
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name | ast.Attribute)
        and getattr(call.func.value, "id", getattr(call.func.value, "attr", "")) in _LOGGERS
    )


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """(kind, the place to replace, its replacement; `{}` stands for the text that is there)."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _braced(node.left), _braced(node.comparators[0])
        yield "comparison", node, f"({left}) {_OPERATORS[type(node.ops[0])]} ({right})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", node, f"({node.value!r} + 1)" if isinstance(node.value, int) or not node.value else f"({node.value!r} * 2)"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield "return", node, "return None"
    elif (
        isinstance(node, ast.AugAssign)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (isinstance(node, ast.Assign) and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets))
    ):
        yield "statement", node, "pass"


def _braced(node: ast.expr) -> str:
    return ast.unparse(node).replace("{", "{{").replace("}", "}}")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
