"""Progress log of the command line tools."""

from __future__ import annotations

import logging
import sys


def teller(tool: str) -> logging.Logger:
    """Returns a logger of plain lines on stderr, because stdout holds the answer."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{tool}: %(message)s"))
    log = logging.getLogger(f"eyas.{tool}")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log
