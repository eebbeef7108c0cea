"""Files that are complete or not there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(to: Path) -> Iterator[Path]:
    """Where to write it; it has its name once all of it is there."""
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
    try:
        yield part
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
