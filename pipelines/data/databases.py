"""Reads the rows of a database query: one query, streamed, without changing the database.

One SELECT is one consistent view of the data. Read-only access doesn't depend on the query's text: SQLite opens read-only and authorises
only reads; PostgreSQL gets one prepared statement in a read-only transaction. The operator's account sets all other rights.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import polars as pl

from pipelines.data.spill import CHUNK
from shared.datafiles.databases import SQLITE, databases
from shared.domain.errors import BadData, Invalid, Unavailable

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_SECONDS = 30


def query_rows(query: str, database: str) -> Iterator[pl.DataFrame]:
    """Yields chunks of the query's rows."""
    url = databases().url(database)
    return _sqlite(query, url, database) if url.startswith(SQLITE) else _postgresql(query, url, database)


def _sqlite(query: str, url: str, database: str) -> Iterator[pl.DataFrame]:
    path = Path(unquote(url.removeprefix(SQLITE)))
    if not path.is_file():
        raise Invalid(f"database {database}: file not found")
    named = f"query of {database}"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_SECONDS)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
            cursor = connection.execute(query)
            columns = _columns([column[0] for column in cursor.description or ()], named)
            while rows := cursor.fetchmany(CHUNK):
                yield pl.DataFrame([_untyped(values, name, named) for name, values in zip(columns, zip(*rows, strict=True), strict=True)])
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise BadData(f"{named}: {_line(error)}") from error


def _untyped(values: Sequence[Any], name: str, named: str) -> pl.Series:
    """Returns an SQLite column; the values of a chunk must be of one kind, as SQLite types values, not columns."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int}:
        return pl.Series(name, values, pl.Int64 if kinds else pl.Null)
    if kinds <= {int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in values], pl.Float64)
    if kinds == {str}:
        return pl.Series(name, values, pl.String)
    kind_names = " and ".join(sorted({"bytes": "binary", "str": "text"}.get(kind.__name__, "numbers") for kind in kinds))
    raise BadData(f"{named}: column '{name}' has {kind_names}; cast the column to numbers or to text in the query")


def _postgresql(query: str, url: str, database: str) -> Iterator[pl.DataFrame]:
    try:
        import psycopg
    except ImportError:
        raise Invalid(f"database {database}: PostgreSQL needs the package psycopg; install eyas[cluster]") from None
    named = f"query of {database}"
    try:
        connection = psycopg.connect(url, connect_timeout=_SECONDS, options="-c default_transaction_read_only=on")
    except psycopg.OperationalError as error:
        raise Unavailable(f"database {database}: connection failed: {_line(error)}") from None
    try:
        with closing(connection), connection.cursor() as cursor:
            connection.read_only = True
            # preparing accepts only one statement, and a cursor only a SELECT
            cursor.execute(f"DECLARE eyas NO SCROLL CURSOR FOR {query}".encode(), prepare=True)
            while True:
                cursor.execute(f"FETCH FORWARD {CHUNK} FROM eyas")
                rows = cursor.fetchall()
                described = cursor.description or []
                if not rows:
                    return
                columns = _columns([column.name for column in described], named)
                kinds = [_kind(column.type_code, column.name, named) for column in described]
                typed_columns = zip(columns, kinds, zip(*rows, strict=True), strict=True)
                yield pl.DataFrame(
                    [
                        pl.Series(name, [_plain(value) for value in values] if plain else values, dtype)
                        for name, (dtype, plain), values in typed_columns
                    ]
                )
    except psycopg.OperationalError as error:
        raise Unavailable(f"{named}: {_line(error)}") from error
    except psycopg.Error as error:
        raise BadData(f"{named}: {_line(error)}") from error


_KINDS: dict[str, tuple[pl.DataType, bool]] = {
    "int2": (pl.Int64(), False),
    "int4": (pl.Int64(), False),
    "int8": (pl.Int64(), False),
    "oid": (pl.Int64(), False),
    "float4": (pl.Float64(), False),
    "float8": (pl.Float64(), False),
    "numeric": (pl.Float64(), True),
    "bool": (pl.Boolean(), False),
    "text": (pl.String(), False),
    "varchar": (pl.String(), False),
    "bpchar": (pl.String(), False),
    "name": (pl.String(), False),
    "uuid": (pl.String(), True),
    "date": (pl.Date(), False),
    "timestamp": (pl.Datetime("us"), False),
    "timestamptz": (pl.Datetime("us", "UTC"), False),
}
"""Our type by PostgreSQL's, and whether values need a conversion first."""


def _kind(oid: int, column: str, named: str) -> tuple[pl.DataType, bool]:
    import psycopg

    type_info = psycopg.adapters.types.get(oid)
    kind = _KINDS.get(type_info.name) if type_info else None
    if type_info is None or kind is None:
        raise BadData(
            f"{named}: column '{column}' has the type {type_info.name if type_info else oid}; "
            f"cast the column in the query, for example {column}::text"
        )
    return (pl.List(kind[0]), kind[1]) if oid == type_info.array_oid else kind


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None else str(value)


def _columns(names: list[str], named: str) -> list[str]:
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise BadData(f"{named}: two columns are named '{doubled[0]}'; rename one with AS")
    return names


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
