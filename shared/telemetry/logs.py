"""Log format: one record per line, `noun: what happened key=value`, as text or as JSON (EYAS_LOG=json).

Every record carries the ids of its context (run, rollout, recommender, request, attempt), so that an id finds all of its lines. In JSON
each pair of a message is a field.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any

FORMAT = "EYAS_LOG"
"""Environment variable of the format, `text` or `json`; stages get it from the platform."""
_CHATTY = ("alembic", "httpx", "httpcore", "uvicorn.access", "uvicorn.error")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    9: "\t",
    10: "\\n",
    13: "\\r",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
"""Control characters in external text are escaped, so that no text forges a log record or controls a terminal."""
_CONVERSION = re.compile(r"(?: ([a-z_][a-z0-9_@]*)=)?%(?:%|[^a-zA-Z%]*[a-zA-Z])")
_ENVELOPE = frozenset({"time", "level", "logger", "message", "traceback", "run", "attempt", "recommender"})
_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_ids: ContextVar[Mapping[str, str]] = ContextVar("log_ids", default=MappingProxyType({}))
_process_ids: dict[str, str] = {}


@contextmanager
def context(**ids: str) -> Iterator[None]:
    """Adds ids to every record of this thread or task, while the block runs."""
    token = _ids.set({**_ids.get(), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def context_id(name: str) -> str:
    """Returns an id of the current context; empty if there is none."""
    return _ids.get().get(name, "")


def identify_process(**ids: str) -> None:
    """Adds ids to every record of this process, on all threads."""
    _process_ids.update(ids)


def pairs(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Splits a message into its text and its `key=value` pairs, by its format: values may contain blanks."""
    if not isinstance(record.args, tuple) or not isinstance(record.msg, str):
        return record.getMessage(), {}
    values, others, fields = iter(record.args), list[object](), dict[str, Any]()

    def cut(match: re.Match[str]) -> str:
        if match[0].endswith("%%"):
            return match[0]
        value = next(values)
        if match[1] is None:
            others.append(value)
            return match[0]
        fields[match[1]] = value
        return ""

    template = _CONVERSION.sub(cut, record.msg)
    return (template % tuple(others) if record.args else template), fields


class Text(logging.Formatter):
    """Time, level, logger and message in one line. Traceback lines are indented with spaces."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        ids = {**_process_ids, **_ids.get()}
        if ids.get("attempt", "").startswith(f"{ids.get('run')}-"):  # the name of an attempt contains its run
            ids = {"attempt": ids["attempt"]}
        shown = "".join(f" {name}={value}" for name, value in ids.items() if f" {name}=" not in record.message)
        return f"{super().formatMessage(record)}{shown}".translate(_CONTROLS)

    def formatException(self, ei: _Raised) -> str:
        return textwrap.indent(super().formatException(ei).translate(_CONTROLS | {10: "\n"}), "  ")


class Json(logging.Formatter):
    """One JSON object: time, level, logger, message, the ids of the context, each pair of the message, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        message, fields = pairs(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": message}
        line = {**_process_ids, **_ids.get(), **{name: _plain(value) for name, value in fields.items()}, **line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, int) else str(value)


def formatter(text: str) -> logging.Formatter:
    """Returns the formatter that the environment asks for; `text` is the format of lines of text."""
    return Json() if os.environ.get(FORMAT) == "json" else Text(text)


def configure(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def stage_log() -> logging.Logger:
    """Returns the log of a stage's process: to stdout, flushed after each line, without the libraries' records."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter("%(message)s"))
    log = logging.getLogger("eyas.stage")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    return log


def message_of(line: str) -> str:
    """Returns the message of a line that a stage has printed, without the ids of its context."""
    try:
        record = json.loads(line)
        fields = {name: value for name, value in record.items() if name not in _ENVELOPE}
        return " ".join([record["message"], *(f"{name}={value}" for name, value in fields.items())])
    except (ValueError, AttributeError, KeyError, TypeError):
        return re.sub(r" attempt=\S+$", "", line)
