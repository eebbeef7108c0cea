"""HTML tables for notebooks: every cell is escaped; no scripts, no external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(value: Any) -> str:
    match value:
        case None:
            return "-"
        case datetime():
            return value.isoformat(" ", "seconds")
        case float():
            return f"{value:.4g}"
        case list() | tuple():
            return ", ".join(map(text, value))
        case dict():
            return ", ".join(f"{name} {text(member)}" for name, member in value.items())
    return str(value)
