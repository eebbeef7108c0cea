"""Log format: one line per record, to stderr: time, level, logger, message. Traceback lines are indented with spaces."""

from __future__ import annotations

import logging
import sys
import textwrap
from types import TracebackType

_CHATTY = ("alembic", "httpx", "httpcore", "uvicorn.access", "uvicorn.error")

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    9: "\t",
    10: "\\n",
    13: "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
"""Control characters in external text are escaped, so that no text forges a log record or controls a terminal."""
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class OneLine(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).translate(_CONTROLS)

    def formatException(self, ei: _Raised) -> str:
        return textwrap.indent(super().formatException(ei).translate(_CONTROLS | {10: "\n"}), "  ")


def configure(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
