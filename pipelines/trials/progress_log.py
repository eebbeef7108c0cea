"""What a command says while it works."""

from __future__ import annotations

import logging
import sys


def teller(tool: str) -> logging.Logger:
    """Plain lines on stderr: stdout is the answer's."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{tool}: %(message)s"))
    log = logging.getLogger(f"eyas.{tool}")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log
