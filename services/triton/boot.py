"""The sign that a server of its own leaves beside the repository: which life of it reads the models now.

Whoever places models learns from a new sign that the server has begun anew, with nothing loaded.
"""

from __future__ import annotations

import secrets
from pathlib import Path

_FILE = "boot"


def announce(home: Path) -> None:
    """A new life."""
    part = home / f".{_FILE}.part"
    part.write_text(f"{secrets.token_hex(16)}\n")
    part.replace(home / _FILE)


def announced(home: Path) -> str | None:
    """The present life's sign; None where no server has ever answered."""
    try:
        return (home / _FILE).read_text().strip() or None
    except FileNotFoundError:
        return None
