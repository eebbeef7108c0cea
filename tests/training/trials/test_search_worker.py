"""The worker process of a search: it dies, is replaced, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.trials.worker_pool import COMMAND, Worker
from shared.domain.errors import BadData, EyasError


def test_an_interrupt_of_the_terminal_is_not_the_workers() -> None:
    """A terminal interrupts the whole group of a search: the worker's own traceback would stand between its words."""
    said = "import json, os, sys; sys.stdin.readline(); print(json.dumps({'group': os.getpgrp()}), flush=True); sys.stdin.read()"
    with Worker({}, (sys.executable, "-c", said)) as worker:
        worker.start()
        assert worker.about["group"] != os.getpgrp()


ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'metrics': json.loads(line)}), flush=True)"
KILLED = "import sys, os\nsys.stdin.readline(); print('{}', flush=True)\nsys.stdin.readline(); os.kill(os.getpid(), 9)"
ENDED = "import sys\nsys.stdin.readline(); print('{}', flush=True)\nsys.stdin.readline(); sys.exit(3)"
FAULTY = 'import sys\nsys.stdin.readline(); print(\'{"fault": "a.csv: no rows", "mendable": true}\', flush=True)'


def worker(program: str) -> Worker:
    return Worker({"data": 1}, (sys.executable, "-c", program))


def test_a_worker_that_dies_has_failed_in_that_trial_and_another_takes_its_place() -> None:
    with worker(KILLED) as one:
        one.start()
        for _ in range(2):
            assert one.tried({})["failed"] == "the process was killed, probably because memory ran out"
    with worker(ENDED) as one:
        assert one.tried({})["failed"] == "the process ended with code 3"
    with worker(ECHO) as one:
        one.start()
        assert [one.tried({"a": number})["metrics"] for number in range(3)] == [{"a": number} for number in range(3)]


def test_a_fault_of_the_data_is_the_searchs() -> None:
    with worker(FAULTY) as trial_worker, pytest.raises(EyasError, match=r"a\.csv: no rows"):
        trial_worker.start()
    with worker("import sys; sys.exit(1)") as trial_worker, pytest.raises(BadData, match="the process ended with code 1"):
        trial_worker.start()


def test_no_worker_is_left_behind() -> None:
    with worker(ECHO) as one:
        one.start()
        process = one._process
        assert process is not None
    assert process.poll() is not None


def test_no_scratch_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a worker that is closed in its midst, nor of one that dies."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = "import sys, json, os\nat = json.loads(sys.stdin.readline())['scratch']\n"
    used += "open(at + '/rows', 'w').close()\nprint('{}', flush=True)"
    for ending in ("\nsys.stdin.readline(); os.kill(os.getpid(), 9)", "\nfor line in sys.stdin: print('{}', flush=True)"):
        with worker(used + ending) as one:
            one.start()
            assert len(list(tmp_path.glob("*/rows"))) == 1
            one.tried({})
        assert not list(tmp_path.iterdir())


def test_a_worker_whose_search_is_gone_takes_its_scratch_with_it(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    data = tmp_path / "a.csv"
    data.write_text("user,item\n" + "".join(f"{user},{item}\n" for user in range(6) for item in range(5)))
    model = {"family": "popularity"}
    first = {"data": {"train": str(data), "models": ["popularity"], "out": str(tmp_path)}, "model": model, "scratch": str(scratch)}
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(first) + "\n")
        process.stdin.flush()
        assert "data" in json.loads(process.stdout.readline())
        assert list(scratch.iterdir())
        process.stdin.close()
        process.wait()
    assert not scratch.exists()
