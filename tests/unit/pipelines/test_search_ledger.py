"""The trials of a search on disk: whole lines, one search a folder, one process at a time; and a worker that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.trials import ledger
from pipelines.trials.crew import COMMAND, Worker
from shared.contracts.tuning import TRIALS, TriedRow
from shared.domain.errors import BadData, EyasError, Invalid

FENCE = {"data": "abc", "ranges": {"params.width": {"from": 1, "to": 2}}, "metric": "ndcg@10"}


def row(number: int) -> TriedRow:
    return TriedRow(number=number, params={"params.width": 3}, state="done", value=0.1 + number, metrics={"hr@10": 1 / 3})


def test_what_was_appended_is_there_again_to_the_last_bit(tmp_path: Path) -> None:
    with ledger.opened(tmp_path / "new", FENCE) as kept:
        for number in range(3):
            kept.append(row(number))
    with ledger.opened(tmp_path / "new", FENCE) as kept:
        assert kept.rows == [row(0), row(1), row(2)]


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_a_death_has_cut_is_taken_away(tmp_path: Path, cut: int) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
        kept.append(row(1))
    path = tmp_path / TRIALS
    path.write_bytes(path.read_bytes()[:-cut])
    with ledger.opened(tmp_path, FENCE) as kept:
        assert kept.rows == [row(0)]
        kept.append(row(1))
    with ledger.opened(tmp_path, FENCE) as kept:
        assert kept.rows == [row(0), row(1)]


@pytest.mark.parametrize("damage", [b"{}\n", b"\xff\xfe\n", b"null\n"])
def test_a_damaged_line_is_named(tmp_path: Path, damage: bytes) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
        kept.append(row(1))
    path = tmp_path / TRIALS
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + second)
    with pytest.raises(BadData, match=r"trials\.jsonl: line 2 is damaged"), ledger.opened(tmp_path, FENCE):
        pass


def test_another_search_in_the_same_folder_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
    for other, said in (
        ({"data": "xyz"}, "of another data:"),
        ({"metric": "hr@10", "ranges": {}}, "of another ranges and another metric:"),
    ):
        with pytest.raises(Invalid, match=said), ledger.opened(tmp_path, FENCE | other):
            pass
    with ledger.opened(tmp_path, FENCE):
        pass


def test_a_search_without_a_trial_leaves_its_folder_to_another(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="unreadable"), ledger.opened(tmp_path, FENCE):
        raise BadData("unreadable")
    with ledger.opened(tmp_path, FENCE | {"data": "mended"}) as kept:
        kept.append(row(0))
    with pytest.raises(Invalid, match="of another data:"), ledger.opened(tmp_path, FENCE):
        pass


@pytest.mark.parametrize("damage", ["[]", "{", "null"])
def test_a_damaged_description_of_the_search_is_named(tmp_path: Path, damage: str) -> None:
    with ledger.opened(tmp_path, FENCE) as kept:
        kept.append(row(0))
    (tmp_path / ledger.SEARCH).write_text(damage)
    with pytest.raises(BadData, match=r"search\.json: it is damaged: choose another folder"), ledger.opened(tmp_path, FENCE):
        pass


def test_an_interrupt_of_the_terminal_is_not_the_workers() -> None:
    """A terminal interrupts the whole group of a search: the worker's own traceback would stand between its words."""
    said = "import json, os, sys; sys.stdin.readline(); print(json.dumps({'group': os.getpgrp()}), flush=True); sys.stdin.read()"
    with Worker({}, (sys.executable, "-c", said)) as worker:
        worker.start()
        assert worker.about["group"] != os.getpgrp()


def test_two_searches_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(Invalid, match="another search is at work there")
    with ledger.opened(tmp_path, FENCE), refused, ledger.opened(tmp_path, FENCE):
        pass
    with ledger.opened(tmp_path, FENCE):
        pass


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="it can't be written to"), ledger.opened(tmp_path / "file" / "x", FENCE):
        pass
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / TRIALS).write_text("")
    with pytest.raises(BadData, match="nobody knows of which search"), ledger.opened(tmp_path / "odd", FENCE):
        pass
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / ledger.SEARCH).write_text("{")
    with pytest.raises(BadData, match="it is damaged"), ledger.opened(tmp_path / "bad", FENCE):
        pass


ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'metrics': json.loads(line)}), flush=True)"
KILLED = "import sys, os\nsys.stdin.readline(); print('{}', flush=True)\nsys.stdin.readline(); os.kill(os.getpid(), 9)"
ENDED = "import sys\nsys.stdin.readline(); print('{}', flush=True)\nsys.stdin.readline(); sys.exit(3)"
FAULTY = 'import sys\nsys.stdin.readline(); print(\'{"fault": "a.csv: it has no rows", "mendable": true}\', flush=True)'


def worker(program: str) -> Worker:
    return Worker({"data": 1}, (sys.executable, "-c", program))


def test_a_worker_that_dies_has_failed_in_that_trial_and_another_takes_its_place() -> None:
    with worker(KILLED) as one:
        one.start()
        for _ in range(2):
            assert one.tried({})["failed"] == "its process was killed, most likely for want of memory"
    with worker(ENDED) as one:
        assert one.tried({})["failed"] == "its process ended with code 3"
    with worker(ECHO) as one:
        one.start()
        assert [one.tried({"a": number})["metrics"] for number in range(3)] == [{"a": number} for number in range(3)]


def test_a_fault_of_the_data_is_the_searchs() -> None:
    with worker(FAULTY) as one, pytest.raises(EyasError, match=r"a\.csv: it has no rows"):
        one.start()
    with worker("import sys; sys.exit(1)") as one, pytest.raises(BadData, match="its process ended with code 1"):
        one.start()


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
