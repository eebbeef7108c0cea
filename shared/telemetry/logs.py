"""One line a record, to stderr: time, level, where, what."""

from __future__ import annotations

import logging
import sys

_CHATTY = ("alembic", "httpx", "httpcore", "uvicorn.access", "uvicorn.error")


def configure(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
