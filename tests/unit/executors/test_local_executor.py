"""`LocalExecutor` on processes that are played: its folders, ends, environments and interpreters.

`tests/contract/test_executors.py` runs it on real processes.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from services.executors.local import CUDF, LocalExecutor
from shared.contracts.stage import FULL, StageSpec
from shared.domain.errors import Invalid, Unavailable
from shared.domain.run import Job
from shared.testing.executor_suite import Behaviour, ExecutorSuite, stage_spec

TERMINATED = -15


class PlayedChild:
    def __init__(self, code: int | None) -> None:
        self._code = code
        self._report: Callable[[int], None] | None = None

    def reap(self, report: Callable[[int], None]) -> None:
        self._report = report
        if self._code is not None:
            report(self._code)

    def stop(self, grace: float) -> None:
        assert self._report is not None
        if self._code is None:
            self._code = TERMINATED
            self._report(self._code)


class PlayedNursery:
    """Stands in for `Nursery`: a child prints and ends at once as its attempt's behaviour says."""

    def __init__(self) -> None:
        self.behaviour: dict[str, Behaviour] = {}
        self.commands: dict[str, list[Sequence[str]]] = {}
        self.environments: dict[str, Mapping[str, str]] = {}
        self.closed = 0

    def spawn(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], log: Path) -> PlayedChild:
        attempt = json.loads(Path(command[-1]).read_text())["attempt"]
        assert cwd == log.parent
        self.commands.setdefault(attempt, []).append(command)
        self.environments[attempt] = env
        text, code = {"works": ("", None), "talks": ("at work\n", None), "succeeds": ("hello wörld\n", 0), "fails": ("no such file\n", 1)}[
            self.behaviour.get(attempt, "works")
        ]
        log.write_text(text)
        return PlayedChild(code)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def nursery(monkeypatch: pytest.MonkeyPatch) -> PlayedNursery:
    nursery = PlayedNursery()
    monkeypatch.setattr("services.executors.local.ProcessSpawner", lambda: nursery)
    return nursery


class PlayedBench:
    def __init__(self, root: Path, nursery: PlayedNursery) -> None:
        self._root, self._nursery = root, nursery
        self.executor = self.again()

    def again(self) -> LocalExecutor:
        return LocalExecutor(self._root, {"etl": "tiny_stage"})

    def behave(self, attempt: str, how: Behaviour) -> None:
        self._nursery.behaviour[attempt] = how

    def starts(self, attempt: str) -> int:
        return len(self._nursery.commands.get(attempt, ()))


@pytest.mark.requirement("C-02", "C-09")
class TestLocalExecutor(ExecutorSuite):
    @pytest.fixture
    def bench(self, tmp_path: Path, nursery: PlayedNursery) -> PlayedBench:
        return PlayedBench(tmp_path / "stages", nursery)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "stages"


@pytest.fixture
def executor(root: Path, nursery: PlayedNursery) -> LocalExecutor:
    return LocalExecutor(root, {"etl": "tiny_stage"})


def test_a_stage_is_started_as_its_module_with_its_spec(executor: LocalExecutor, nursery: PlayedNursery, root: Path) -> None:
    executor.start(stage_spec("r1-etl-1"))
    spec = root / "r1-etl-1" / "spec.json"
    assert nursery.commands["r1-etl-1"] == [[sys.executable, "-P", "-m", "tiny_stage", "--spec", str(spec)]]
    assert StageSpec.model_validate_json(spec.read_text()) == stage_spec("r1-etl-1")


def test_closing_ends_what_runs_and_nothing_starts_afterwards(executor: LocalExecutor, nursery: PlayedNursery) -> None:
    executor.start(stage_spec("r1-etl-1"))
    nursery.behaviour["r2-etl-1"] = "succeeds"
    executor.start(stage_spec("r2-etl-1"))
    executor.close()
    assert nursery.closed == 1
    assert executor.observe("r1-etl-1") == Job("lost", "the platform was stopped during the attempt")
    assert executor.observe("r2-etl-1") == Job("succeeded")
    with pytest.raises(Unavailable, match="closed"):
        executor.start(stage_spec("r3-etl-1"))


def test_an_attempt_of_a_platform_that_ended_is_lost_and_not_started_again(
    executor: LocalExecutor, nursery: PlayedNursery, root: Path
) -> None:
    (root / "r1-etl-1").mkdir(parents=True)
    assert executor.observe("r1-etl-1") == Job("lost", "the platform ended during the attempt")
    executor.start(stage_spec("r1-etl-1"))
    assert nursery.commands == {}


def test_secrets_of_the_platform_stay_with_it(root: Path, nursery: PlayedNursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EYAS_TOKEN", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("TZ", "UTC")
    only = {"train": {"KEY": "hush"}, "etl": {"DATABASES": "/a"}}
    executor = LocalExecutor(root, {"etl": "tiny_stage"}, {"MORE": "b"}, only=only)
    executor.start(stage_spec("r1-etl-1"))
    environment = nursery.environments["r1-etl-1"]
    assert "hush" not in environment.values()
    assert {name: environment[name] for name in ("DATABASES", "MORE", "TZ", "PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL")} == {
        "DATABASES": "/a", "MORE": "b", "TZ": "UTC", "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2",
    }  # fmt: skip


def test_a_log_is_never_cut_inside_a_character(executor: LocalExecutor, root: Path) -> None:
    folder = root / "r1-etl-1"
    folder.mkdir(parents=True)
    (folder / "log.txt").write_bytes("né".encode()[:2])
    assert executor.log("r1-etl-1") == ("n", 1)
    (folder / "log.txt").write_bytes("né\n".encode())
    assert executor.log("r1-etl-1", 1) == ("é\n", 4)
    assert executor.log("r1-etl-1", 99) == ("", 4)


def test_a_stage_without_a_module_is_refused(executor: LocalExecutor) -> None:
    with pytest.raises(Invalid, match="verify"):
        executor.start(stage_spec("r1-verify-1", stage="verify"))


def test_an_engine_has_the_interpreter_that_the_operator_names_for_etl_alone(root: Path, nursery: PlayedNursery, tmp_path: Path) -> None:
    python = tmp_path / "other-python"
    python.touch(0o755)
    executor = LocalExecutor(root, {"etl": "tiny_stage", "train": "tiny_stage"}, engines={"nvtabular": python})
    executor.start(by_nvtabular("r1-etl-1"))
    executor.start(by_nvtabular("r1-train-1", stage="train"))
    executor.start(by_nvtabular("r2-etl-1").model_copy(update={"mode": "compact"}))
    executor.start(by_nvtabular("r3-etl-1").model_copy(update={"mode": "forget"}))
    found = {attempt: command[0] for attempt, (command,) in nursery.commands.items()}
    assert found == {"r1-etl-1": str(python), "r1-train-1": sys.executable, "r2-etl-1": sys.executable, "r3-etl-1": sys.executable}


@pytest.mark.requirement("C-10")
def test_etl_on_a_gpu_runs_on_the_interpreter_with_cudf_polars_if_there_is_one(root: Path, nursery: PlayedNursery) -> None:
    python = root.parent / "python"
    python.touch(0o755)
    for number, engines in enumerate(({CUDF: python}, {})):
        for gpu in (0, 2):
            spec = stage_spec(f"r{number}-etl-{gpu}", stage="etl")
            etl = spec.recommender.resources.etl.model_copy(update={"gpu": gpu})
            resources = spec.recommender.resources.model_copy(update={"etl": etl})
            recommender = spec.recommender.model_copy(update={"resources": resources})
            LocalExecutor(root, {"etl": "tiny_stage"}, engines=engines).start(spec.model_copy(update={"recommender": recommender}))
    interpreters = {attempt: command[0] for attempt, (command,) in nursery.commands.items()}
    assert interpreters == {"r0-etl-0": sys.executable, "r0-etl-2": str(python), "r1-etl-0": sys.executable, "r1-etl-2": sys.executable}


@pytest.mark.parametrize(
    ("engines", "why"), [({}, "is not set"), ({"nvtabular": Path("/nowhere/python")}, "is /nowhere/python, which is not a program")]
)
def test_an_engine_whose_environment_is_missing_is_refused_by_one_line(
    root: Path, nursery: PlayedNursery, engines: dict[str, Path], why: str
) -> None:
    executor = LocalExecutor(root, {"etl": "tiny_stage"}, engines=engines)
    with pytest.raises(Invalid, match=f"nvtabular's environment is missing: run make setup-nvtabular .EYAS_NVTABULAR_PYTHON {why}"):
        executor.start(by_nvtabular("r1-etl-1"))
    assert executor.observe("r1-etl-1") is None


def by_nvtabular(attempt: str, stage: str = "etl") -> StageSpec:
    spec = stage_spec(attempt, stage=stage)
    resources = spec.recommender.resources
    engine = resources.model_copy(update={"etl": resources.etl.model_copy(update={"engine": "nvtabular"})})
    return spec.model_copy(update={"recommender": spec.recommender.model_copy(update={"resources": engine})})


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called no file can be written; what it returns ends that."""

    def no_room(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", no_room)


def test_an_attempt_whose_folder_takes_no_file_is_started_when_there_is_room(
    tmp_path: Path, nursery: PlayedNursery, monkeypatch: pytest.MonkeyPatch, full: Callable[[], None]
) -> None:
    executor = LocalExecutor(tmp_path, {"etl": "tiny_stage"})
    full()
    with pytest.raises(Unavailable, match=r"r1-etl-1 was not started: cannot write its folder .*: No space left on device"):
        executor.start(stage_spec("r1-etl-1"))
    assert executor.observe("r1-etl-1") is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr("services.executors.local.ProcessSpawner", lambda: nursery)
    executor.start(stage_spec("r1-etl-1"))
    assert executor.observe("r1-etl-1") == Job("running")


def test_an_end_that_cannot_be_written_is_known_all_the_same(
    tmp_path: Path, nursery: PlayedNursery, full: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    executor = LocalExecutor(tmp_path, {"etl": "tiny_stage"})
    executor.start(stage_spec("r1-etl-1"))
    full()
    executor.stop("r1-etl-1")
    assert executor.observe("r1-etl-1") == Job("failed", "killed by signal 15", "crash")
    (record,) = caplog.records
    assert record.exc_info is None
    assert "exit.json not written, a restart of the platform loses the result attempt=r1-etl-1 error=" in record.getMessage()
    assert sorted(one.name for one in (tmp_path / "r1-etl-1").iterdir()) == ["log.txt", "spec.json"]


def test_a_stage_that_found_its_disk_full_says_so(tmp_path: Path, nursery: PlayedNursery, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalExecutor(tmp_path, {"etl": "tiny_stage"})
    monkeypatch.setattr(nursery, "spawn", lambda *given: given[3].write_text("etl: failed: no room\n") and PlayedChild(FULL))
    executor.start(stage_spec("r1-etl-1"))
    assert executor.observe("r1-etl-1") == Job("failed", "exit code 4: etl: failed: no room", "disk")
