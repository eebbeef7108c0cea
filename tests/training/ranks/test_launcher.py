"""What becomes of a stage of several ranks by how each of them ends; ranks are small programs here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from pipelines.stages import launcher
from shared.contracts.stage import StageSpec
from tests.unit.pipelines.recommender import spec

ROOT = Path(__file__).parents[3]
ENDS = {
    "well": "pass",
    "refuses": "sys.exit(2)",
    "breaks": "sys.exit('the disk is full')",
    "left": "print('lost another one'); sys.exit(3)",
    "dies": "os.kill(os.getpid(), 9)",
    "hangs": "signal.pause()",
}


def stage(folder: Path, processes: int = 3) -> StageSpec:
    model = {"framework": "torch", "train": {"processes": processes}}
    return StageSpec(
        stage="train", run="run", attempt="run-train-1", recommender=spec(folder, model=model), artifacts=str(folder / "artifacts")
    )


def launched(folder: Path, monkeypatch: pytest.MonkeyPatch, *ends: str) -> int:
    def spawned(stage: str, spec: Path, environment: Mapping[str, str], log: Path | None) -> subprocess.Popen[bytes]:
        program = f"import os, signal, sys\n{ENDS[ends[int(environment['EYAS_RANK'])]]}"
        with (folder / "rank0.txt" if log is None else log).open("wb") as stream:
            return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=stream, stderr=stream)

    monkeypatch.setattr(launcher, "_spawned", spawned)
    monkeypatch.setenv(launcher.GRACE, "1")
    (folder / "spec.json").write_text("{}")
    return launcher.launch(stage(folder, len(ends)), folder / "spec.json", logging.getLogger("test"))


@pytest.mark.requirement("G-27")
@pytest.mark.parametrize(
    ("ends", "code", "reason"),
    [
        (("well", "well", "well"), 0, ""),
        (("refuses", "left", "left"), 2, ""),
        (("refuses", "hangs"), 2, ""),
        (("left", "dies", "left"), 1, "rank 1 of 3 was killed by signal 9 (SIGKILL); the other ranks were stopped"),
        (("dies", "left"), 1, "rank 0 of 2 was killed by signal 9 (SIGKILL)"),
        (
            ("left", "breaks"),
            1,
            "rank: last lines rank=1 line=the disk is full\n"
            "train: failed error=rank 1 of 2 ended with exit code 1: the disk is full; the other ranks",
        ),
        (("left", "left", "hangs"), 1, "rank 2 of 3 stopped responding to the other ranks"),
        (("hangs", "dies"), 1, "rank 1 of 2 was killed by signal 9"),
        (("left", "left"), 1, "rank 0 of 2 lost the other ranks"),
    ],
)
def test_the_one_that_failed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: tuple[str, ...], code: int, reason: str
) -> None:
    assert launched(tmp_path, monkeypatch, *ends) == code
    assert reason in "\n".join(caplog.messages)


def test_ranks_do_not_outlive_who_started_them() -> None:
    rank_program = (
        "from pipelines.stages.launcher import end_with_launcher as e; import signal; e(); print('up', flush=True); signal.pause()"
    )
    program = f"""
import os, signal, subprocess, sys
os.environ["EYAS_LAUNCHER"] = str(os.getpid())
one = subprocess.Popen([sys.executable, "-c", {rank_program!r}])
print(one.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        rank = psutil.Process(int(process.stdout.readline()))
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGKILL)
        gone, _ = psutil.wait_procs([rank], timeout=30)
        assert gone
