"""A newer release migrates the database under a running older one, and the older one comes back: an upgrade and its rollback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.store.engine import sqlite_url
from tests.platform.conftest import Copy
from tests.servers.platform_process import PlatformProcess, until
from tests.support.document_runner import copy
from tests.support.request_load import Load, is_answered

MIGRATION = Path(__file__).parents[1] / "support/newer_release/0009_notes.py"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The program of a release with one more migration, which adds a column."""
    folder = copy(tmp_path_factory.mktemp("newer") / "eyas")
    shutil.copy(MIGRATION, folder / "services/store/migrations/versions")
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from services.cli.main import main; main()"
    return sys.executable, "-c", code


def migrate(program: tuple[str, ...], home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EYAS_HOME": str(home), "EYAS_DATABASE_URL": sqlite_url(home / "eyas.db")}
    return subprocess.run([*program, "migrate", *words], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.requirement("U-11")
@pytest.mark.timeout(300)
def test_an_older_release_works_on_the_tables_of_a_newer_one_and_comes_back(
    copy_of_trained: Copy, newer: tuple[str, ...], tmp_path: Path
) -> None:
    older = copy_of_trained(tmp_path)
    with older:
        until("the model answers", lambda: is_answered(older))
        with Load(older) as load:
            until("events are stored", lambda: len(load.acknowledged) > 20)
            done = migrate(newer, older.home)
            assert (done.returncode, done.stdout) == (0, "the database is at revision notes\n"), done.stderr
            count = len(load.acknowledged)
            until("more events are stored", lambda: len(load.acknowledged) > count + 50)
        assert load.failures == []
        assert older.stop() == 0
        older.start()
        until("the older release answers after its rollback", lambda: is_answered(older))
        assert "migrated by a newer release, used unchanged revision=notes" in older.log
    with PlatformProcess(older.home, older.data, program=newer) as upgraded:
        until("the newer release answers", lambda: is_answered(upgraded))
    refused = migrate((sys.executable, "-m", "services.cli.main"), older.home, "--to", "item_creation")
    assert refused.returncode != 0 and "use the `eyas migrate --to` of that release" in refused.stderr
    done = migrate(newer, older.home, "--to", "item_creation")
    assert (done.returncode, done.stdout) == (0, "the database is at revision item_creation\n"), done.stderr
    with PlatformProcess(older.home, older.data) as again:
        until("the older release answers on its own tables", lambda: is_answered(again))
