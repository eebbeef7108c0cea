"""`eyas` in the test's own process, against an API that answers from a table."""

from __future__ import annotations

from tests.support.cli_fixtures import eyas, home, platform, spec_file, tool, tool_in_process

__all__ = ["eyas", "home", "platform", "spec_file", "tool", "tool_in_process"]
