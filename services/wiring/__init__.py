"""The one place that reads settings, builds adapters and hands them over: the same parts, as one process or in roles."""

from collections.abc import Mapping
from typing import Any

__all__ = ["migrate", "serve"]


def serve(options: Mapping[str, Any]) -> int:
    """Runs a platform, or a role of one, until it is told to end."""
    from services.wiring.process import serve as begin

    return begin(options)


def migrate() -> None:
    """Brings the database that the environment names up to date."""
    from services.wiring.migration import migrate as begin

    begin()
