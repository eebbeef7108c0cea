"""The commands of `eyas` and their examples, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.cli.command_registry import ENTRIES, INNER


def _commands() -> Iterator[tuple[str, Any]]:
    for entry in ENTRIES:
        command = entry.command()
        inner = getattr(command, "commands", None)
        if inner:
            yield from ((f"{entry.name} {name}", one) for name, one in inner.items())
        else:
            yield entry.name, command


COMMANDS = dict(_commands())
EXAMPLES = {one.name: one.example for one in ENTRIES if one.example} | {name: example for name, (example, _) in INNER.items()}
