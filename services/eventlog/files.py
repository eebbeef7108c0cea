"""Files that are complete or absent."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(to: Path) -> Iterator[Path]:
    """Yields a temporary path to write to; renames the file to `to` when it is complete."""
    part = to.with_name(f".{to.name}.{secrets.token_hex(4)}")
    try:
        yield part
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
