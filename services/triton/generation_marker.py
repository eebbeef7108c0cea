"""Markers beside the repository, by which a remote server and the placing process inform each other.

`boot` holds the id of the server's current start: a new id tells the placing process that nothing is loaded. `placed` holds the id of the
start that has got all its versions: until then the server is not ready. The id also tells whether the server has a GPU.
"""

from __future__ import annotations

import secrets
from pathlib import Path

_BOOT, _PLACED = "boot", "placed"
_GPU = "-gpu"


def announce(home: Path, gpu: bool = False) -> None:
    """Writes a new start's id."""
    _write(home, _BOOT, secrets.token_hex(16) + _GPU * gpu)


def has_gpu(life: str | None) -> bool:
    return life is not None and life.endswith(_GPU)


def announced(home: Path) -> str | None:
    """Returns the current start's id; None if no server has ever answered."""
    return _read(home, _BOOT)


def vouch(home: Path, life: str) -> None:
    """Confirms that this start has its versions."""
    _write(home, _PLACED, life)


def vouched(home: Path) -> bool:
    """Whether the current start has its versions."""
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
