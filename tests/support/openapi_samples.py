"""docs/openapi.json: its operations by request, and a sample document of each schema, with every field and no empty list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@cache
def openapi() -> dict[str, Any]:
    return dict(json.loads((ROOT / "docs/openapi.json").read_text()))


def operation(method: str, path: str) -> tuple[str, dict[str, Any]]:
    """Returns the template and the operation of a request; of several templates, the one with the fewest parameters."""
    fits = sorted((template for template in openapi()["paths"] if _pattern(template).fullmatch(path)), key=lambda name: name.count("{"))
    for template in fits:
        if method.lower() in openapi()["paths"][template]:
            return template, openapi()["paths"][template][method.lower()]
    raise AssertionError(f"docs/openapi.json has no {method} {path}")


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", r"[^/:]+", re.escape(template)))


def answer_schema(operation: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """Returns status and schema of the answer of a success; no schema if the answer is empty."""
    status = next(status for status in sorted(operation["responses"]) if status.startswith("2"))
    content = operation["responses"][status].get("content", {})
    return int(status), content["application/json"]["schema"] if content else None


def schema(name: str) -> dict[str, Any]:
    return dict(openapi()["components"]["schemas"][name])


def sample(node: dict[str, Any]) -> Any:
    if "$ref" in node:
        return sample(schema(node["$ref"].rpartition("/")[2]))
    for key in ("const", "enum", "anyOf"):
        if key in node:
            return {"const": lambda: node["const"], "enum": lambda: node["enum"][0], "anyOf": lambda: sample(node["anyOf"][0])}[key]()
    match node.get("type"):
        case "array":
            return [sample(node.get("items", {}))]
        case "object" | None:
            names = {name: sample(member) for name, member in node.get("properties", {}).items()}
            values = node.get("additionalProperties")
            return names | ({"a name": sample(values)} if isinstance(values, dict) else {})
        case "string":
            return "2026-01-01T00:00:00Z" if node.get("format") == "date-time" else "text"
        case "boolean":
            return True
    least = node.get("minimum", 1)
    return least if abs(least) < 2**53 else 1


def references(node: Any) -> Iterator[str]:
    """Yields the names of the schemas that a node names."""
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for member in node.values():
            yield from references(member)
    elif isinstance(node, list):
        for member in node:
            yield from references(member)
