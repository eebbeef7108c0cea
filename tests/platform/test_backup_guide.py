"""The runbook of disasters: each of its commands is run, on a platform with a trained recommender."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.document_runner import ROOT, Reader, blocks, copy


@pytest.mark.requirement("U-11")
@pytest.mark.timeout(300)
def test_each_step_of_the_runbook_works(trained: Path, tmp_path: Path) -> None:
    name = "docs/how-to/backup.md"
    project = copy(tmp_path / "eyas")
    shutil.copytree(trained / "home", project / "var/eyas")
    with Reader(project, seconds=120) as reader:
        reader.follow(blocks((ROOT / name).read_text(), name))
    assert reader.ran == 10
