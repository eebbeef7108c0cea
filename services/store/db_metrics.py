"""Metrics of the database: seconds per statement, and number of faults."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import InterfaceError, OperationalError

from shared.telemetry import metrics

_BEGAN = "eyas.began"
_OPERATIONS = {name: metrics.DATABASE_SECONDS.labels(name) for name in ("begin", "select", "insert", "update", "delete", "other")}


def measure(engine: Engine) -> None:
    """Adds the listeners to an engine. Must come before other listeners of `handle_error`, because those raise."""
    event.listen(engine, "before_cursor_execute", _begin)
    event.listen(engine, "after_cursor_execute", _end)
    event.listen(engine, "handle_error", _fault)


def _begin(connection: Connection, *_: Any) -> None:
    connection.info[_BEGAN] = time.perf_counter()


def _end(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
    word = statement[:8].split(maxsplit=1)[0].lower()
    _OPERATIONS.get(word, _OPERATIONS["other"]).observe(time.perf_counter() - connection.info[_BEGAN])


def _fault(context: ExceptionContext) -> None:
    """Counts faults of the database; an integrity error is not a fault: it tells a writer that another writer was first."""
    if isinstance(context.sqlalchemy_exception, OperationalError | InterfaceError) and not context.is_pre_ping:
        metrics.DATABASE_FAULTS.inc()
