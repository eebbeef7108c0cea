"""A stage whose disk takes no write ends with a code of its own, and with one line."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from pipelines.stages import runner
from pipelines.stages.runner import Context, Outcome
from shared.contracts.stage import FULL


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
    def attempt(*_: object) -> int:
        raise error

    def work(_: Context) -> Outcome:
        raise AssertionError

    monkeypatch.setattr(runner, "_attempt", attempt)
    monkeypatch.setattr(sys, "argv", ["etl", "--spec", str(tmp_path / "spec.json")])
    with pytest.raises(SystemExit) as ended:
        runner.main("etl", work)
    assert ended.value.code == code
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == f"etl: failed: {type(error).__name__}: {error}"
    assert ("Traceback" in said) is (code == 1)
