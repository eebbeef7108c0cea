"""Processes that start at once on a new database: each finds the tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.store.engine import sqlite_url
from tests.servers.postgres_server import Server

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_start_at_once_all_find_the_tables(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind == "sqlite":
        url = sqlite_url(tmp_path / "eyas.db")
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.new_database(migrated=False)
    code = (
        "import sys; from services.store.engine import open_engine; from services.store.migrate import upgrade\n"
        "print('ready', flush=True); sys.stdin.readline(); engine = open_engine(sys.argv[1]); upgrade(engine); engine.dispose()"
    )
    command = [sys.executable, "-W", "error", "-c", code, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, cwd=ROOT, text=True, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        said, faults = process.communicate(timeout=60)
        assert (process.returncode, said, faults) == (0, "", "")
