"""Wiring: the only code that reads settings, builds adapters and connects them, for one process or for separate roles."""

from collections.abc import Mapping
from typing import Any

__all__ = ["migrate", "serve"]


def serve(options: Mapping[str, Any]) -> int:
    """Runs a platform, or one role, until it is stopped."""
    from services.wiring.process import serve as begin

    return begin(options)


def migrate(revision: str | None) -> str:
    """Migrates the database that the environment names, and returns its revision; back to an older revision, if one is given."""
    from services.wiring.migration import migrate as begin

    return begin(revision)
