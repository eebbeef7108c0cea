"""What is one SELECT and what isn't."""

from __future__ import annotations

import pytest

from shared.domain.sql import not_one_select

ACCEPTED: list[str] = [
    "SELECT 1",
    "  select a, ';' from t -- a comment; with a semicolon",
    "/* first; */ WITH x AS (SELECT 1) SELECT * FROM x",
    "SELECT \"a;b\", 'it''s; one' FROM t",
    "SELECT $$a;b$$, $x$;$x$",
]


def test_one_select_is_good(subtests: pytest.Subtests) -> None:
    for query in ACCEPTED:
        with subtests.test(query=query):
            assert not_one_select(query) is None


REFUSED: list[tuple[str, str]] = [
    ("", "empty: expected one SELECT"),
    ("-- nothing", "empty: expected one SELECT"),
    ("SELECT 1;", "without ';'"),
    ("SELECT 1; DROP TABLE t", "without ';'"),
    ("SELECT ''';' ; DROP TABLE t", "without ';'"),
    ("DELETE FROM t", "begins with 'DELETE'"),
    ("/* SELECT */ UPDATE t SET a = 1", "begins with 'UPDATE'"),
    ("(SELECT 1)", "begins with '\\('"),
]


def test_anything_else_is_said_to_be_none(subtests: pytest.Subtests) -> None:
    for query, said in REFUSED:
        with subtests.test(query=query, said=said):
            fault = not_one_select(query)
            assert fault is not None
            assert said.replace("\\", "") in fault
