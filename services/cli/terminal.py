"""Terminal of stdout: its size, its colours, and whether it can be redrawn."""

from __future__ import annotations

import os
import shutil
import sys

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def watched() -> bool:
    """Returns whether stdout is a terminal."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Returns the terminal's columns, or None for a pipe or a file, where a line can have any length."""
    return shutil.get_terminal_size((80, 24)).columns if watched() else None


def height() -> int:
    return shutil.get_terminal_size((80, 24)).lines


def redraws() -> bool:
    """Returns whether the terminal supports cursor moves."""
    return watched() and os.environ.get("TERM", "") not in {"", "dumb", "unknown"}


def colourful() -> bool:
    """Returns whether to print colours.

    NO_COLOR takes precedence; FORCE_COLOR and CLICOLOR_FORCE colour a pipe too; TERM=dumb and CLICOLOR=0 turn colours off."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in {"", "0", "false"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return redraws() and os.environ.get("CLICOLOR", "1") != "0"


def painted(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text and colourful() else text
