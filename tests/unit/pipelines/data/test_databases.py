"""A query reads and does nothing else, whatever its text; its faults are one line without a secret."""

from __future__ import annotations

import sqlite3
import tracemalloc
from pathlib import Path

import polars as pl
import pytest

from pipelines.data import databases
from pipelines.data.databases import query_rows
from pipelines.data.spill import spill_chunks
from shared.domain.errors import BadData, Invalid
from tests.support.secret_files import write_secret


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE did (user, item, value)")
        connection.executemany("INSERT INTO did VALUES (?, ?, ?)", [(n, n % 7, n / 2) for n in range(1_500)])
    connection.close()
    use(monkeypatch, tmp_path, f"sqlite:///{path}")
    return path


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str) -> None:
    write_secret(folder / "databases.yaml", f"shop: {url}\n")
    monkeypatch.setenv("EYAS_DATABASES", str(folder / "databases.yaml"))


def answer(query: str) -> pl.DataFrame:
    return pl.concat(list(query_rows(query, "shop")))


WRITING: list[str] = [
    "DELETE FROM did",
    "WITH x AS (SELECT 1) DELETE FROM did",
    "ATTACH DATABASE 'other.db' AS other",
    "PRAGMA journal_mode = DELETE",
    "SELECT * FROM pragma_table_info('did')",
    "SELECT load_extension('x')",
    "SELECT 1; DROP TABLE did",
    "CREATE TABLE other (a)",
]


@pytest.mark.requirement("G-29")
def test_sqlite_is_read_and_nothing_else(subtests: pytest.Subtests, shop: Path) -> None:
    for query in WRITING:
        with subtests.test(query=query):
            before = shop.read_bytes()
            with pytest.raises(BadData, match=r"^query of shop: "):
                answer(query)
            assert shop.read_bytes() == before
            assert not (shop.parent / "other.db").exists()


def test_kinds_that_show_late_are_the_widest_of_a_column(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "CHUNK", 600)
    query = "SELECT user, CASE WHEN user < 1000 THEN item ELSE value END AS v, CASE WHEN user > 1400 THEN 'x' END AS w FROM did"
    spilled = spill_chunks(query_rows(query, "shop"), tmp_path / "laid", "shop")
    rows = spilled.frame.collect()
    assert len(spilled.files) == 3
    assert rows.schema == {"user": pl.Int64, "v": pl.Float64, "w": pl.String}
    assert rows["v"][1_001] == 500.5
    with pytest.raises(BadData, match="query of shop: column 'v' has numbers and text; cast the column"):
        answer("SELECT CASE WHEN user = 7 THEN 'x' ELSE user END AS v FROM did")
    with pytest.raises(BadData, match="shop: column 'v' mixes types \\(Int64 and String\\)"):
        spill_chunks(query_rows("SELECT CASE WHEN user >= 600 THEN 'x' ELSE user END AS v FROM did", "shop"), tmp_path / "laid", "shop")


FAULTY: list[tuple[str, str]] = [
    ("SELECT device FROM did", "query of shop: no such column: device"),
    ("SELECT user, item AS user FROM did", "query of shop: two columns are named 'user'; rename one with AS"),
    ("SELECT x'00' AS b", "query of shop: column 'b' has binary; cast the column"),
]


def test_a_faulty_query_is_one_line(subtests: pytest.Subtests, shop: Path) -> None:
    for query, said in FAULTY:
        with subtests.test(query=query), pytest.raises(BadData, match=said):
            answer(query)


def test_a_query_without_rows_is_refused(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="shop: no rows"):
        spill_chunks(query_rows("SELECT * FROM did WHERE user < 0", "shop"), tmp_path / "laid", "shop")


MISTAKES: list[tuple[str, str]] = [
    ("other: sqlite:////a.db", "unknown database 'shop'; known: other; add it to the file that EYAS_DATABASES names"),
    ("shop: mysql://reader:hush@host/shop", "the URL of 'shop' must begin with postgresql://"),
    ("shop: sqlite:///shop.db", "sqlite://// for an absolute path"),
    ("shop: [hush]", "must have one 'name: URL' per line"),
    ("shop: 'hush", "is not YAML"),
    ("shop: sqlite:////nowhere/shop.db", "database shop: file not found"),
]


def test_what_the_operator_said_wrongly_is_told_without_its_secrets(
    subtests: pytest.Subtests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, said in MISTAKES:
        with subtests.test(said=said):
            write_secret(tmp_path / "databases.yaml", text)
            monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
            with pytest.raises(Invalid, match=said) as caught:
                answer("SELECT 1")
            assert "hush" not in str(caught.value)


def test_without_databases_no_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EYAS_DATABASES", raising=False)
    with pytest.raises(Invalid, match="unknown database 'shop'; known: none"):
        answer("SELECT 1")


def test_memory_is_that_of_a_chunk_however_many_rows_come(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "CHUNK", 6_500)

    def peak(rows: int) -> int:
        query = (
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT i AS user, i * 0.5 AS value FROM n"
        )
        tracemalloc.start()
        spill_chunks(query_rows(query, "shop"), tmp_path / "laid", "shop")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)  # what is imported and kept once
    assert peak(50_000) < 1.3 * peak(14_000)
