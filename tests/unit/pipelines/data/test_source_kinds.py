"""Every kind of file, and a SQLite database: the same rows give the same frame.

`tests/contract/test_sources.py` reads many rows, of servers too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.support.secret_files import write_secret
from tests.support.source_kinds import (
    FILES,
    Source,
    assert_digest_is_stable,
    assert_events_join,
    assert_missing_column_is_named,
    assert_same_frame,
    rows,
    sqlite,
)


@pytest.fixture(params=[*FILES, sqlite], ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[pl.DataFrame], Source]:
    """Writes a frame in one kind."""

    def databases(text: str) -> None:
        write_secret(tmp_path / "databases.yaml", text)
        monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))

    return lambda frame: request.param(tmp_path, frame, databases=databases)


@pytest.mark.requirement("G-29")
def test_the_same_rows_give_the_same_frame_and_events_join_them(kind: Callable[[pl.DataFrame], Source], subtests: pytest.Subtests) -> None:
    frame = rows(1000)
    source = kind(frame)
    with subtests.test("the same frame"):
        assert_same_frame(source, frame)
    with subtests.test("the digest is stable"):
        assert_digest_is_stable(source)
    with subtests.test("a missing column is named with the columns that are there"):
        assert_missing_column_is_named(source)
    with subtests.test("events join"):
        assert_events_join(source, 1000)
