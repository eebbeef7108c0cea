"""The Executor suite on real processes, and what only processes can get wrong. `tests/unit/executors` has the rest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.executors.local import LocalExecutor
from shared.contracts.stage import StageSpec
from shared.domain.errors import Unavailable
from shared.domain.run import Job
from shared.testing.executor_suite import ExecutorSuite, ended, stage_spec
from shared.testing.waiting import wait_for

STAGE = """
import argparse, json, os, pathlib, signal, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument("--spec", type=pathlib.Path, required=True)
path = parser.parse_args().spec
attempt = json.loads(path.read_text())["attempt"]
behaviour = pathlib.Path(os.environ["BEHAVIOUR"])
with (behaviour / (attempt + ".starts")).open("a") as stream:
    stream.write(f"{os.getpid()}\\n")
how = (behaviour / attempt).read_text()
if how == "succeeds":
    print("hello w\\u00f6rld")
elif how == "fails":
    print("something\\nno such file\\n")
    sys.exit(1)
elif how == "talks":
    print("at work", flush=True)
    signal.pause()
elif how == "environment":
    print(json.dumps(dict(os.environ)))
else:
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"])
        print(child.pid)
    signal.pause()
"""

PLATFORM = """
import pathlib, sys, threading
from services.executors.local import LocalExecutor
from shared.testing.executor_suite import stage_spec
root, attempt = sys.argv[1:]
executor = LocalExecutor(pathlib.Path(root), {"etl": "tiny_stage"}, ENV)
executor.start(stage_spec(attempt))
threading.Event().wait()
"""


class LocalBench:
    def __init__(self, folder: Path) -> None:
        (folder / "modules").mkdir()
        (folder / "modules" / "tiny_stage.py").write_text(STAGE)
        self.root, self.behaviour = folder / "stages", folder / "behaviour"
        self.behaviour.mkdir()
        self.env = {"PYTHONPATH": str(folder / "modules"), "BEHAVIOUR": str(self.behaviour)}
        self.others: list[LocalExecutor] = []
        self.executor = self.another()

    def another(self) -> LocalExecutor:
        return LocalExecutor(self.root, {"etl": "tiny_stage"}, self.env, grace=0.5)

    def again(self) -> LocalExecutor:
        self.others.append(self.another())
        return self.others[-1]

    def behave(self, attempt: str, how: str) -> None:
        (self.behaviour / attempt).write_text(how)

    def starts(self, attempt: str) -> int:
        return len(self.pids(attempt))

    def pids(self, attempt: str) -> list[int]:
        path = self.behaviour / f"{attempt}.starts"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def pid(self, attempt: str) -> int:
        return int(wait_for(lambda: self.pids(attempt))[0])


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBench]:
    bench = LocalBench(tmp_path)
    yield bench
    for executor in (bench.executor, *bench.others):
        executor.close()


@pytest.mark.requirement("C-02", "C-09")
class TestLocalExecutor(ExecutorSuite):
    @pytest.fixture
    def bench(self, local: LocalBench) -> LocalBench:
        return local


def test_stopping_ends_grandchildren_that_refuse_to_go(local: LocalBench) -> None:
    local.behave("r1-etl-1", "stubborn")
    local.executor.start(stage_spec("r1-etl-1"))
    grandchild = int(wait_for(lambda: "".join(local.executor.log("r1-etl-1")[0].split())))
    local.executor.stop("r1-etl-1")
    assert local.executor.observe("r1-etl-1") == Job("failed", "killed by signal 9", "crash")
    wait_for(lambda: gone(grandchild))


def test_a_child_outlives_the_thread_that_asked_for_it(local: LocalBench) -> None:
    local.behave("r1-etl-1", "works")
    asking = threading.Thread(target=local.executor.start, args=(stage_spec("r1-etl-1"),))
    asking.start()
    asking.join()
    pid = local.pid("r1-etl-1")
    assert local.executor.observe("r1-etl-1") == Job("running")
    assert not gone(pid)


def test_an_attempt_of_a_platform_that_was_killed_is_lost_and_its_process_is_dead(local: LocalBench) -> None:
    local.behave("r1-etl-1", "works")
    program = PLATFORM.replace("ENV", repr(local.env))
    platform = subprocess.Popen([sys.executable, "-c", program, str(local.root), "r1-etl-1"])
    try:
        child = local.pid("r1-etl-1")
    finally:
        platform.send_signal(signal.SIGKILL)
        platform.wait()
    wait_for(lambda: gone(child))
    job = local.executor.observe("r1-etl-1")
    assert job is not None
    assert job.phase == "lost"
    local.executor.start(stage_spec("r1-etl-1"))
    assert local.starts("r1-etl-1") == 1


def test_closing_ends_what_runs_and_nothing_starts_afterwards(local: LocalBench) -> None:
    local.behave("r1-etl-1", "works")
    local.executor.start(stage_spec("r1-etl-1"))
    pid = local.pid("r1-etl-1")
    local.executor.close()
    assert gone(pid)
    job = local.executor.observe("r1-etl-1")
    assert job is not None
    assert (job.phase, job.reason) == ("lost", "the platform was stopped during the attempt")
    with pytest.raises(Unavailable, match="closed"):
        local.executor.start(stage_spec("r2-etl-1"))


def test_secrets_of_the_platform_stay_with_it(local: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYAS_TOKEN", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    executor = LocalExecutor(local.root, {"etl": "tiny_stage"}, local.env, only={"train": {"KEY": "hush"}, "etl": {"DATABASES": "/a"}})
    local.behave("r1-etl-1", "environment")
    executor.start(stage_spec("r1-etl-1"))
    ended(executor, "r1-etl-1")
    environment = json.loads(executor.log("r1-etl-1")[0])
    assert "hush" not in environment.values()
    assert environment["DATABASES"] == "/a"
    assert environment["PYTHONUNBUFFERED"] == "1"
    assert environment["BEHAVIOUR"] == local.env["BEHAVIOUR"]
    executor.close()


def gone(pid: int) -> bool:
    """Ended; a zombie has ended too."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_shim_starts_nothing_for_a_parent_that_is_gone() -> None:
    shim = Path(__file__).parents[2] / "services" / "shim.py"
    found = subprocess.run([sys.executable, "-I", shim, str(os.getpid() + 1), "true"], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "parent is gone" in found.stderr


def test_an_engine_has_the_interpreter_that_the_operator_names_for_it_and_for_etl_alone(local: LocalBench, tmp_path: Path) -> None:
    python = tmp_path / "other-python"
    python.write_text('#!/bin/sh\necho "it is $0, told $3"\n')
    python.chmod(0o755)
    executor = LocalExecutor(local.root, {"etl": "tiny_stage", "train": "tiny_stage"}, local.env, engines={"nvtabular": python})
    local.others.append(executor)
    executor.start(_by_nvtabular("r1-etl-1"))
    assert wait_for(lambda: executor.observe("r1-etl-1") == Job("succeeded"))
    assert executor.log("r1-etl-1")[0] == f"it is {python}, told tiny_stage\n"
    executor.start(_by_nvtabular("r1-train-1", stage="train"))
    assert wait_for(lambda: local.starts("r1-train-1") == 1)


def _by_nvtabular(attempt: str, stage: str = "etl") -> StageSpec:
    spec = stage_spec(attempt, stage=stage)
    resources = spec.recommender.resources
    engine = resources.model_copy(update={"etl": resources.etl.model_copy(update={"engine": "nvtabular"})})
    return spec.model_copy(update={"recommender": spec.recommender.model_copy(update={"resources": engine})})
