"""`eyas backup`, `backups` and `restore` as people type them; what they copy: tests/unit/ports/test_backup.py."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import Manifest
from tests.support.resource_suite import NOW

pytestmark = pytest.mark.requirement("U-11")


@pytest.fixture
def home(migrated_sqlite: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copyfile(migrated_sqlite, folder / "eyas.db")
    (tmp_path / "model").write_text("weights")
    artifacts = FsspecArtifacts(str(folder / "artifacts"))
    files = {"model": artifacts.put(tmp_path / "model")}
    artifacts.publish(Manifest(run="r1", stage="train", attempt="r1-train-1", started=NOW, ended=NOW, files=files))
    return folder


def test_a_backup_is_made_listed_and_restored(eyas, home: Path, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    assert eyas("backups", backups).stdout == "no backups\n"
    made = eyas("backup", backups, "--home", home, "--keep", 3)
    assert made.exit_code == 0, made.output
    assert re.fullmatch(r"backup \d{8}T\d{6}Z made: sqlite database of \d\.\d MB, artifacts of 0\.0 MB; \d\.\d MB copied\n", made.stdout)
    name = made.stdout.split()[1]
    assert eyas("backups", backups).stdout == f"{name}\n"
    assert json.loads(eyas("backups", backups, "--json").stdout) == {"names": [name]}
    restored = eyas("restore", backups, "--home", tmp_path / "new", "--json")
    assert restored.exit_code == 0, restored.output
    assert json.loads(restored.stdout)["name"] == name
    again = eyas("restore", backups, "--home", tmp_path / "new")
    assert again.exit_code != 0 and "exists; move it away first, or restore into another --home" in again.output


def test_a_backup_of_a_store_that_lost_a_file_is_made_and_says_so(eyas, home: Path, tmp_path: Path) -> None:
    (blob,) = (path for path in (home / "artifacts/blobs").rglob("*") if path.is_file())
    blob.unlink()
    made = eyas("backup", tmp_path / "backups", "--home", home)
    assert made.exit_code == 1
    restored = eyas("restore", tmp_path / "backups", "--home", tmp_path / "new")
    for answer in (made, restored):
        assert answer.exit_code == 1
        assert f"incomplete: 1 missing or damaged in the artifact store at the time of the backup ({blob.name[:40]})" in answer.output
