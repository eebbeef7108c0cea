"""The statements that a call sends to a database, and the database's plans for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event


def statements(engine: Engine, act: Callable[[], object]) -> list[tuple[str, Any]]:
    """Each statement with its parameters, without BEGIN."""
    sent: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "BEGIN" not in statement:
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        act()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sent


def plans(engine: Engine, act: Callable[[], object]) -> list[str]:
    """The steps of the plans of all statements that `act` sends."""
    steps: list[str] = []
    for statement, parameters in statements(engine, act):
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                steps += [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            else:
                steps += connection.exec_driver_sql(f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {statement}", parameters).scalars()
    return steps


def assert_flat(engine: Engine, plan: list[str], narrowed: bool) -> None:
    """No step reads or sorts many rows of `resources`: the cost does not grow with the table."""
    text = "\n".join(plan)
    if engine.dialect.name == "sqlite":
        reads = [step for step in plan if "resources" in step]
        assert reads, text
        assert all("SEARCH" in step and "INDEX" in step for step in reads), text
        assert not narrowed or "(kind=?)" not in text, text
    else:
        assert "Seq Scan" not in text, text
        assert all(int(rows) <= 1000 for rows in re.findall(r"rows=(\d+)", text)), text
        assert all(int(rows) <= 1000 for rows in re.findall(r"Removed by Filter: (\d+)", text)), text
