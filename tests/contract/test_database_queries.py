"""Queries of a PostgreSQL source: read-only whatever the text, its types, and a refused login."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import psycopg
import pytest

from pipelines.data.databases import query_rows
from shared.domain.errors import BadData, EyasError, Unavailable
from tests.servers.postgres_server import GUARDED, Server
from tests.support.secret_files import write_secret


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
    write_secret(folder / "databases.yaml", f"shop: {url}\n")
    monkeypatch.setenv("EYAS_DATABASES", str(folder / "databases.yaml"))


def answer(query: str) -> pl.DataFrame:
    return pl.concat(list(query_rows(query, "shop")))


WRITING: list[str] = [
    "DELETE FROM did RETURNING 1",
    "SELECT 1; DROP TABLE did",
    "SELECT 1; COMMIT; DROP TABLE did",
    "WITH x AS (DELETE FROM did RETURNING 1) SELECT * FROM x",
    "SELECT setval('numbers', 99)",
    "SELECT 1 INTO other",
    "SELECT * FROM did FOR UPDATE",
]


@pytest.mark.requirement("G-29")
def test_postgresql_is_read_and_nothing_else(
    subtests: pytest.Subtests, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for query in WRITING:
        with subtests.test(query=query):
            url = postgres.new_database(migrated=False)
            with psycopg.connect(url) as connection:
                connection.execute("CREATE TABLE did AS SELECT 1 AS a")
                connection.execute("CREATE SEQUENCE numbers")
            use(monkeypatch, tmp_path, url)
            with pytest.raises(BadData, match=r"^query of shop: "):
                answer(query)
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT a, (SELECT last_value FROM numbers) FROM did").fetchall() == [(1, 1)]
                assert connection.execute("SELECT to_regclass('other')").fetchone() == (None,)


def test_postgresqls_kinds_are_ours(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path, postgres.new_database(migrated=False))
    found = answer(
        "SELECT 1::int2 a, 2.5::numeric b, true c, 'x'::varchar d, '2026-01-31'::date e, '2026-01-31 12:00+02'::timestamptz f, "
        "ARRAY['x','y'] g, ARRAY[1,NULL]::bigint[] h, 'b0e3c7a4-94b5-4b9e-9f1d-2d3a4b5c6d7e'::uuid i, NULL::float4 j"
    )
    assert found.row(0) == (
        1, 2.5, True, "x", date(2026, 1, 31), datetime(2026, 1, 31, 10, tzinfo=UTC), ["x", "y"], [1, None],
        "b0e3c7a4-94b5-4b9e-9f1d-2d3a4b5c6d7e", None,
    )  # fmt: skip
    assert answer("SELECT 7 % 4 AS a WHERE 'abc' LIKE 'a%' -- %s").rows() == [(3,)]
    with pytest.raises(BadData, match="column 'a' has the type json; cast the column in the query, for example a::text"):
        answer("SELECT '{}'::json AS a")


def test_a_database_that_lets_nobody_in_is_no_fault_of_the_data(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.new_database(migrated=False)
    use(monkeypatch, tmp_path, postgres.url(url.rsplit("/", 1)[-1].split("?")[0], GUARDED, "hush-wrong"))
    with pytest.raises(Unavailable, match="database shop: connection failed") as caught:
        answer("SELECT 1")
    assert "hush-wrong" not in str(caught.value)
    assert isinstance(caught.value, EyasError)
