"""The commands of docs/how-to/tuning.md as they stand there, on a small world."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from shared.contracts.models import Model
from shared.contracts.strict import read
from tests.support.taste_table import likes

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/how-to/tuning.md").read_text()
COMMANDS = re.findall(r"```\n(eyas .*?)\n```", TEXT, re.DOTALL)


@pytest.mark.requirement("N-01", "N-05")
def test_the_guides_commands_do_what_it_says(tmp_path: Path) -> None:
    train, test, _ = cut(PairFile("likes", likes()), "random", 3)
    train.write_csv(tmp_path / "train.csv")
    test.write_csv(tmp_path / "test.csv")
    said = [_run(command, tmp_path) for command in COMMANDS]
    assert len(said) == 4

    assert {one.name for one in (tmp_path / "trained").iterdir()} == set(
        re.findall(r"^\| `([a-z_.]+?)(?:/.*)?` \|", _table("Train"), re.MULTILINE)
    )
    assert json.loads((tmp_path / "judged/report.json").read_text())["models"]["trained"]["metrics"]["hr@10"]["mean"] > 0

    named = set(re.findall(r"^\| `([a-z.]+)` \|", _table("Search"), re.MULTILINE))
    assert named == {one.name for one in (tmp_path / "searched").iterdir() if not one.name.startswith(".")}
    assert len((tmp_path / "searched/trials.jsonl").read_text().splitlines()) == 6
    again = _run(COMMANDS[2], tmp_path)
    assert again == said[2]

    assert "on the test pairs: ndcg@10" in said[3]


def test_the_guides_spec_is_one() -> None:
    model = yaml.safe_load(re.findall(r"```yaml part-of-a-spec.yaml\n(.*?)```", TEXT, re.DOTALL)[0])["model"]
    assert set(read(Model, model, "model").tune) == {"params.width", "params.sweeps"}


def _table(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def _run(command: str, folder: Path) -> str:
    words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", "services.cli.main", *words[1:]],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
