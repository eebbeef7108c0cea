"""One suite for every kind of source, servers among them: the same rows give the same frame, whatever they come out of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.servers.s3_server import S3Server
from tests.support.secret_files import write_secret
from tests.support.source_kinds import (
    FILES,
    IN_S3,
    Databases,
    Source,
    assert_digest_is_stable,
    assert_events_join,
    assert_missing_column_is_named,
    assert_same_frame,
    postgresql,
    rows,
    sqlite,
)

ROWS = 140_000
"""More than a chunk."""
KINDS = [*FILES, *IN_S3, sqlite, postgresql]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.close()


@pytest.fixture
def databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Databases:
    def given(text: str) -> None:
        write_secret(tmp_path / "databases.yaml", text)
        monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))

    return given


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, databases: Databases) -> Callable[..., Source]:
    """Writes a frame in one kind, with the server that it takes."""
    more: dict[str, Any] = {}
    if request.param in IN_S3:
        more["s3"] = request.getfixturevalue("s3")
        for name, value in more["s3"].environment.items():
            monkeypatch.setenv(name, value)
    if request.param is postgresql:
        more["postgres"] = request.getfixturevalue("postgres")
    return lambda frame: request.param(tmp_path, frame, databases=databases, **more)


@pytest.mark.requirement("G-29")
def test_the_same_rows_give_the_same_frame(kind: Callable[[pl.DataFrame], Source]) -> None:
    frame = rows(ROWS)
    assert_same_frame(kind(frame), frame)


@pytest.mark.requirement("G-29")
def test_a_source_has_a_digest_names_a_missing_column_and_is_joined_by_events(
    kind: Callable[[pl.DataFrame], Source], subtests: pytest.Subtests
) -> None:
    source = kind(rows(1000))
    with subtests.test("the digest is stable"):
        assert_digest_is_stable(source)
    with subtests.test("a missing column is named with the columns that are there"):
        assert_missing_column_is_named(source)
    with subtests.test("events join"):
        assert_events_join(source, 1000)
