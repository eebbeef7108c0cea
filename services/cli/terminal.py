"""What stands at the other end of stdout: how wide and high it is, whether it shows colours, whether it can be drawn on again."""

from __future__ import annotations

import os
import shutil
import sys

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def watched() -> bool:
    """Somebody looks: neither a pipe nor a file."""
    return sys.stdout.isatty()


def width() -> int | None:
    """Of the terminal, in columns; nothing where nobody looks, for there a line may be as long as it is."""
    return shutil.get_terminal_size((80, 24)).columns if watched() else None


def height() -> int:
    return shutil.get_terminal_size((80, 24)).lines


def redraws() -> bool:
    """Understands a cursor that moves."""
    return watched() and os.environ.get("TERM", "") not in {"", "dumb", "unknown"}


def colourful() -> bool:
    """NO_COLOR has the last word; FORCE_COLOR and CLICOLOR_FORCE colour a pipe too; TERM=dumb and CLICOLOR=0 leave colours out."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in {"", "0", "false"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return redraws() and os.environ.get("CLICOLOR", "1") != "0"


def painted(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text and colourful() else text
