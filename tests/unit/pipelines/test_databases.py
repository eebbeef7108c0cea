"""A query reads and does nothing else, whatever its text; its faults are one line without a secret."""

from __future__ import annotations

import sqlite3
import tracemalloc
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl
import psycopg
import pytest

from pipelines.data.databases import query_rows
from pipelines.data.laid import lay
from shared.domain.errors import BadData, EyasError, Invalid, Unavailable
from tests.servers.postgres_server import GUARDED, Server


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE did (user, item, value)")
        connection.executemany("INSERT INTO did VALUES (?, ?, ?)", [(n, n % 7, n / 2) for n in range(150_000)])
    connection.close()
    use(monkeypatch, tmp_path, f"sqlite:///{path}")
    return path


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
    (folder / "databases.yaml").write_text(f"shop: {url}\n")
    monkeypatch.setenv("EYAS_DATABASES", str(folder / "databases.yaml"))


def answer(query: str) -> pl.DataFrame:
    return pl.concat(list(query_rows(query, "shop")))


@pytest.mark.requirement("G-29")
@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM did",
        "WITH x AS (SELECT 1) DELETE FROM did",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "SELECT * FROM pragma_table_info('did')",
        "SELECT load_extension('x')",
        "SELECT 1; DROP TABLE did",
        "CREATE TABLE other (a)",
    ],
)
def test_sqlite_is_read_and_nothing_else(query: str, shop: Path) -> None:
    before = shop.read_bytes()
    with pytest.raises(BadData, match=r"^query of shop: "):
        answer(query)
    assert shop.read_bytes() == before
    assert not (shop.parent / "other.db").exists()


@pytest.mark.requirement("G-29")
@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM did RETURNING 1",
        "SELECT 1; DROP TABLE did",
        "SELECT 1; COMMIT; DROP TABLE did",
        "WITH x AS (DELETE FROM did RETURNING 1) SELECT * FROM x",
        "SELECT setval('numbers', 99)",
        "SELECT 1 INTO other",
        "SELECT * FROM did FOR UPDATE",
    ],
)
def test_postgresql_is_read_and_nothing_else(query: str, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(BadData, match="column 'a' is of the type json: cast it in the query, such as a::text"):
        answer("SELECT '{}'::json AS a")


def test_kinds_that_show_late_are_the_widest_of_a_column(shop: Path, tmp_path: Path) -> None:
    query = "SELECT user, CASE WHEN user < 100000 THEN item ELSE value END AS v, CASE WHEN user > 140000 THEN 'x' END AS w FROM did"
    laid = lay(query_rows(query, "shop"), tmp_path / "laid", "shop")
    found = laid.frame.collect()
    assert len(laid.files) == 3
    assert found.schema == {"user": pl.Int64, "v": pl.Float64, "w": pl.String}
    assert found["v"][100_001] == 50_000.5
    with pytest.raises(BadData, match="query of shop: column 'v' has numbers and text: cast it"):
        answer("SELECT CASE WHEN user = 7 THEN 'x' ELSE user END AS v FROM did")
    with pytest.raises(BadData, match="shop: column 'v' has values of several kinds \\(Int64 and String\\)"):
        lay(query_rows("SELECT CASE WHEN user >= 65536 THEN 'x' ELSE user END AS v FROM did", "shop"), tmp_path / "laid", "shop")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT device FROM did", "query of shop: no such column: device"),
        ("SELECT user, item AS user FROM did", "query of shop: two columns are called 'user': name one of them anew with AS"),
        ("SELECT x'00' AS b", "query of shop: column 'b' has binary: cast it"),
    ],
)
def test_a_faulty_query_is_one_line(query: str, said: str, shop: Path) -> None:
    with pytest.raises(BadData, match=said):
        answer(query)


def test_a_query_without_rows_is_refused(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="shop: it has no rows"):
        lay(query_rows("SELECT * FROM did WHERE user < 0", "shop"), tmp_path / "laid", "shop")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other: sqlite:////a.db", "no database 'shop' \\(known: other; EYAS_DATABASES names the file\\)"),
        ("shop: mysql://reader:hush@host/shop", "the URL of 'shop' must begin with postgresql://"),
        ("shop: sqlite:///shop.db", "sqlite://// for a file's whole path"),
        ("shop: [hush]", "must hold names and URLs"),
        ("shop: 'hush", "is not YAML"),
        ("shop: sqlite:////nowhere/shop.db", "database shop: its file is not there"),
    ],
)
def test_what_the_operator_said_wrongly_is_told_without_its_secrets(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "databases.yaml").write_text(text)
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
    with pytest.raises(Invalid, match=said) as caught:
        answer("SELECT 1")
    assert "hush" not in str(caught.value)


def test_without_databases_no_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EYAS_DATABASES", raising=False)
    with pytest.raises(Invalid, match="no database 'shop' \\(known: none"):
        answer("SELECT 1")


def test_a_database_that_lets_nobody_in_is_no_fault_of_the_data(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.new_database(migrated=False)
    use(monkeypatch, tmp_path, postgres.url(url.rsplit("/", 1)[-1].split("?")[0], GUARDED, "hush-wrong"))
    with pytest.raises(Unavailable, match="database shop: no connection") as caught:
        answer("SELECT 1")
    assert "hush-wrong" not in str(caught.value)
    assert isinstance(caught.value, EyasError)


def test_memory_is_that_of_a_chunk_however_many_rows_come(shop: Path, tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        query = (
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT i AS user, i * 0.5 AS value FROM n"
        )
        tracemalloc.start()
        lay(query_rows(query, "shop"), tmp_path / "laid", "shop")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(500_000) < 1.3 * peak(140_000)
