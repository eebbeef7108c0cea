"""The signs that a server of its own and whoever places models on it leave for each other beside the repository.

`boot` tells which life of the server reads the models now: from a new one, whoever places learns that the server has begun anew,
with nothing loaded. `placed` names the life that was given all that it should have: until then the server isn't ready.
"""

from __future__ import annotations

import secrets
from pathlib import Path

_BOOT, _PLACED = "boot", "placed"


def announce(home: Path) -> None:
    """A new life."""
    _write(home, _BOOT, secrets.token_hex(16))


def announced(home: Path) -> str | None:
    """The present life's sign; None where no server has ever answered."""
    return _read(home, _BOOT)


def vouch(home: Path, life: str) -> None:
    """This life has its versions."""
    _write(home, _PLACED, life)


def vouched(home: Path) -> bool:
    """Whether the present life was given its versions."""
    life = announced(home)
    return life is not None and _read(home, _PLACED) == life


def _write(home: Path, name: str, content: str) -> None:
    part = home / f".{name}.part"
    part.write_text(f"{content}\n")
    part.replace(home / name)


def _read(home: Path, name: str) -> str | None:
    try:
        return (home / name).read_text().strip() or None
    except FileNotFoundError:
        return None
