"""Commands that start `python -m pipelines.data`: each tool once as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.cli.exit_codes import Exit
from tests.unit.pipelines.recommender import spec, write


@pytest.fixture(autouse=True)
def _this_tree(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


@pytest.mark.requirement("T-14")
def test_data_is_made_and_described(eyas, tmp_path):
    assert eyas("data", "synth", "ml-100k", "--to", tmp_path / "files", "--rows", "2000").exit_code == 0
    said = eyas("data", "convert", tmp_path / "files", tmp_path / "rows")
    assert f"{tmp_path}/rows/interactions.parquet: 2,000 rows" in said.stdout
    assert "2,000 rows, 4 columns" in eyas("data", "describe", tmp_path / "rows" / "interactions.parquet").stdout
    said = eyas("data", "describe", tmp_path / "rows" / "none.parquet")
    assert (said.exit_code, said.stderr) == (2, f"eyas: {tmp_path}/rows/none.parquet: file not found\n")


def test_features_are_explained(eyas, tmp_path):
    write(tmp_path)
    (tmp_path / "films.json").write_text(json.dumps(spec(tmp_path).document()))
    shown = eyas("features", "explain", tmp_path / "films.json")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("films, family mlp: fitted on 160 rows to train on, 20 items, 29 users")


def test_a_tool_that_dies_is_an_error(eyas, monkeypatch, tmp_path):
    monkeypatch.setattr("services.wiring.tools.MODULE", "pipelines.nothing")
    said = eyas("data", "describe", str(tmp_path))
    assert said.exit_code == Exit.AWAY
    assert "eyas: python -m pipelines.nothing ended with exit code 1 and no answer" in said.stderr


def test_models_are_evaluated(eyas, tmp_path):
    rows = [
        f"{user}\t{item}\t5\t{(user * 7 + item * 13) % 97}"
        for user in range(1, 25)
        for item in range(1, 60)
        if (user + item) % 3 == 0 or item < 5
    ]
    (tmp_path / "all.tsv").write_text("\n".join(rows) + "\n")
    what = ("evaluate", "--train", str(tmp_path / "all.tsv"), "--out", str(tmp_path / "out"), "--sampled", "10")
    done = eyas(*what, "--model", "mf", "--set", "width=4", "--set", "regularisation=0.01", "--seeds", "2")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[:3]] == ["MODEL", "popularity", "mf"]
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert found["hr@10/10"]["seeds"] == 2
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")
    refused = eyas(*what, "--model", "nmf")
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1].startswith("eyas: --model nmf: unknown model family 'nmf': did you mean 'mf'?")
