"""Draws a feature graph as Graphviz or Mermaid text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.contracts.explanation import Node


_COLOURS = {"user": "#cfe8ff", "item": "#ffe3c2", "context": "#e3f4d7", "pair": "#eadcf7"}


def dot(nodes: Sequence[Node]) -> str:
    lines = ["digraph features {", "  rankdir=LR;", "  node [style=filled, fontname=sans];"]
    for number, node in enumerate(nodes):
        shape = "box" if node.table else "ellipse"
        pen = ", penwidth=2" if node.feature else ""
        lines.append(f"  n{number} [label={_quoted(_label(node))}, shape={shape}, fillcolor={_quoted(_COLOURS[node.side])}{pen}];")
    lines += [f"  n{source} -> n{target};" for source, target in _edges(nodes)]
    return "\n".join([*lines, "}"])


def mermaid(nodes: Sequence[Node]) -> str:
    lines = ["flowchart LR"]
    for number, node in enumerate(nodes):
        left, right = ("[", "]") if node.table else ("([", "])")
        lines.append(f"  n{number}{left}{_quoted(_label(node))}{right}:::{node.side}")
    lines += [f"  n{source} --> n{target}" for source, target in _edges(nodes)]
    return "\n".join([*lines, *(f"  classDef {side} fill:{colour}" for side, colour in _COLOURS.items())])


def _edges(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    place = {node.id: number for number, node in enumerate(nodes)}
    for number, node in enumerate(nodes):
        yield from ((place[source], number) for source in node.of)


def _label(node: Node) -> str:
    origin = f"{node.by}, {node.table}" if node.by and node.table else node.by or node.table
    return f"{node.name} ({origin})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'
