"""Changes to rows beside the stores: one text is damaged, or tables are emptied between the cases of a test."""

from __future__ import annotations

from sqlalchemy import Engine, text


def damage(engine: Engine, table: str, column: str, value: str, where: str) -> None:
    """Writes a text into one row."""
    with engine.begin() as connection:
        statement = text(f"UPDATE {table} SET {column} = :value WHERE {where}")
        assert connection.execute(statement, {"value": value}).rowcount == 1


def empty(engine: Engine, *tables: str) -> None:
    with engine.begin() as connection:
        for table in tables:
            connection.execute(text(f"DELETE FROM {table}"))
