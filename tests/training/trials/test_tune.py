"""`eyas tune` with its worker processes: what is searched, and gone on with after kills and failed trials."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipelines.trials import tune as command
from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from pipelines.trials.tune import tune
from pipelines.trials.worker_pool import Worker
from shared.contracts.tuning import BEST, TRIALS, TUNE_PAGE
from tests.support.taste_table import likes

ROOT = Path(__file__).parents[3]
RANGES = {"params.width": {"from": 2, "to": 16, "log": True}, "params.regularisation": {"from": 1e-3, "to": 1.0, "log": True}}
EXACT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    train, test, _ = cut(PairFile("likes", likes()), "random", 3)
    train.write_csv(tmp_path / "train.csv")
    test.write_csv(tmp_path / "test.csv")
    return tmp_path


def told(world: Path, **more: Any) -> dict[str, Any]:
    begin = {"train": str(world / "train.csv"), "out": str(world / "out"), "name": "mf", "model": {"family": "mf", "params": {"sweeps": 2}}}
    return begin | {"ranges": RANGES, "trials": 4} | more


QUICK = """
import json, os, sys
sys.stdin.readline()
print(json.dumps({"data": {}, "how": ["by hand"], "faults": []}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    params = asked["model"].get("params", {})
    width = params.get("width", 1)
    if width > 8:
        os.kill(os.getpid(), 9)
    answer = {"metrics": dict.fromkeys(asked["metrics"], width / 10)}
    if width > 4 or params.get("sweeps") == 13:
        answer = {"failed": "too wide"}
    print(json.dumps({"seconds": 1} | answer), flush=True)
"""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that trains nothing: the wider, the better."""
    monkeypatch.setattr(command, "Worker", lambda first: Worker(first, (sys.executable, "-c", QUICK)))


def trials(world: Path, out: str = "out") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (world / out / TRIALS).read_text().splitlines()]


def what_counts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["number"], row["params"], row["state"], row["value"], row["metrics"]) for row in rows]


def test_a_searchs_first_trial_is_what_evaluate_finds_with_the_same_holdout(world: Path) -> None:
    from pipelines.trials.evaluate import evaluate

    tune(told(world, trials=1, seed=1))
    evaluate({"train": str(world / "train.csv"), "models": ("mf",), "settings": {"sweeps": 2}, "out": str(world / "found"), "seed": 1})
    assert trials(world)[0]["value"] == pytest.approx(json.loads((world / "found/report.json").read_text())["ndcg@10"]["mean"], abs=1e-6)


@pytest.mark.requirement("N-01")
def test_a_search_killed_again_and_again_is_the_one_that_was_not(world: Path) -> None:
    """SIGKILL at random moments, until it ends by itself: the same trials, in the same order, with the same figures to the last bit."""
    slow = {"family": "mf", "params": {"sweeps": 60}}
    plain, killed = told(world, trials=5, model=slow), told(world, trials=5, model=slow, out=str(world / "killed"))
    done = _started(plain)
    assert done.wait() == 0
    chance = random.Random(11)
    kills = 0
    for _ in range(60):
        process = _started(killed)
        had = _lines(world / "killed")
        deadline = time.monotonic() + 120
        while process.poll() is None and _lines(world / "killed") < had + 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.1)
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        kills += 1
    else:
        pytest.fail("it never came to its end")
    assert process.returncode == 0
    assert kills >= 2
    assert what_counts(trials(world, "killed")) == what_counts(trials(world))
    first, second = ((world / name / BEST).read_text() for name in ("out", "killed"))
    assert first == second


def _started(request: dict[str, Any]) -> subprocess.Popen[bytes]:
    program = "import sys, json; from pipelines.trials.tune import tune; tune(json.loads(sys.argv[1]))"
    env = os.environ | EXACT | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program, json.dumps(request)], env=env, stderr=subprocess.DEVNULL)


def _lines(folder: Path) -> int:
    path = folder / TRIALS
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_trial_that_fails_has_its_reason_and_the_search_goes_on(world: Path, quick: None) -> None:
    """Above 8 the process dies, above 4 the model can't be trained."""
    answer = tune(told(world, ranges={"params.width": {"from": 2, "to": 12}}, trials=15))
    rows = trials(world)
    reasons = {row["reason"] for row in rows if row["state"] == "failed"}
    assert reasons == {"the process was killed, probably because memory ran out", "too wide"}
    for row in rows:
        assert (row["state"] == "done") == (row["params"].get("params.width", 0) <= 4)
    assert answer.failed == sum(row["state"] == "failed" for row in rows) and answer.done + answer.failed == 15
    assert answer.best[0].params == {"params.width": 4}
    assert "too wide" in (world / "out" / TUNE_PAGE).read_text()
