"""A stage whose disk takes no write ends with a code of its own, and with one line."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from shared import stage_process
from shared.contracts.stage import FULL, StageSpec
from shared.stage_process import Attempt
from tests.unit.pipelines import recommender


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/a"), FULL),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), FULL),
        (RuntimeError("ComputeError: No space left on device (os error 28)"), FULL),
        (FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)), 1),
        (RuntimeError("a bug"), 1),
    ],
    ids=["full", "quota", "a library's", "missing", "bug"],
)
def test_a_full_disk_has_an_exit_code_and_no_traceback(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def perform(_: Attempt) -> int:
        raise error

    artifacts = str(tmp_path / "artifacts")
    spec = StageSpec(stage="etl", run="r", attempt="r-etl-1", recommender=recommender.spec(tmp_path), artifacts=artifacts)
    (tmp_path / "spec.json").write_text(spec.model_dump_json(by_alias=True))
    monkeypatch.setattr(sys, "argv", ["etl", "--spec", str(tmp_path / "spec.json")])
    with pytest.raises(SystemExit) as ended:
        stage_process.main("etl", "pipelines.stages.etl", perform)
    assert ended.value.code == code
    log = capsys.readouterr().out
    assert log.splitlines()[-1] == f"etl: failed error={type(error).__name__}: {error} attempt=r-etl-1"
    assert ("Traceback" in log) is (code == 1)
