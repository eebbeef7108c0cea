"""`eyas` as a process of its own, against an API that answers from a table."""

from __future__ import annotations

from tests.support.cli_fixtures import eyas, home

__all__ = ["eyas", "home"]
