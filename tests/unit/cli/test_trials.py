"""`eyas evaluate`: requests to the tool, and how its answer is shown. With the real tool: tests/platform/cli/test_tools.py."""

import json

import pytest

from shared.contracts.datatools import ToolAnswer
from shared.contracts.trials import EvaluateRequest


def figure(mean, std=0.01, seeds=5):
    return {"mean": mean, "std": std, "seeds": seeds}


FOUND = {
    "rows": [
        {"model": "popularity", "metrics": {"hr@10/99": figure(0.45, 0, 1), "hr@10": figure(0.05, 0, 1)}, "minutes": 0.001},
        {"model": "mf", "metrics": {"hr@10/99": figure(0.71234), "hr@10": figure(0.1)}, "minutes": 1.25},
    ],
    "faults": ["n.negative: 3 negatives that are the user's own test items, taken out"],
    "report": "/x/report.json",
    "page": "/x/report.html",
}


@pytest.mark.requirement("N-07")
def test_everything_that_is_said_is_asked(eyas, tool, tmp_path):
    asked, answers = tool
    answers.append(ToolAnswer(found=FOUND))
    a = {name: str(tmp_path / name) for name in ("train", "test", "negatives", "users", "items", "out")}
    shown = eyas(
        *("evaluate", "--train", a["train"], "--test", a["test"], "--negatives", a["negatives"], "--model", "mf", "--model", "mlp"),
        *(
            "--set",
            "width=8",
            "--set",
            "train.optimizer=sgd",
            "--set",
            "layers=[4,2]",
            "--seeds",
            "5",
            "--out",
            a["out"],
            "--sampled",
            "50",
        ),
        *(
            "--saved",
            a["out"] + "/models/x",
            "--keep",
            "--seed",
            "9",
            "--min-interactions",
            "20",
            "--users",
            a["users"],
            "--items",
            a["items"],
            "--slice",
            "age",
            "--strict",
        ),
    ).stdout
    name, request = asked.pop()
    assert name == "evaluate"
    assert request == EvaluateRequest(
        train=a["train"],
        test=a["test"],
        negatives=a["negatives"],
        models=("mf", "mlp"),
        saved=(a["out"] + "/models/x",),
        keep=True,
        settings={"width": 8, "train.optimizer": "sgd", "layers": [4, 2]},
        seeds=5,
        out=a["out"],
        sampled=50,
        seed=9,
        min_interactions=20,
        users=a["users"],
        items=a["items"],
        slices=("age",),
        strict=True,
    )
    lines = shown.splitlines()
    assert lines[0].split() == ["MODEL", "HR@10/99", "HR@10", "MINUTES"]
    assert lines[1].split() == ["popularity", "0.4500", "0.0500", "0.00"]
    assert lines[2].split() == ["mf", "0.7123", "±0.0100", "0.1000", "±0.0100", "1.25"]
    assert lines[3:] == ["note: " + FOUND["faults"][0], "/x/report.json", "/x/report.html"]


def test_an_answer_for_machines_and_a_refusal(eyas, tool, tmp_path):
    _, answers = tool
    answers += [ToolAnswer(found=FOUND), ToolAnswer(fault="train: it has no rows", code=2)]
    what = ("evaluate", "--train", str(tmp_path / "a"), "--model", "mf", "--out", str(tmp_path))
    assert json.loads(eyas(*what, "--json").stdout)["rows"][1]["metrics"]["hr@10"] == figure(0.1)
    refused = eyas(*what)
    assert (refused.exit_code, refused.stderr) == (2, "eyas: train: it has no rows\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [(("--set", "width"), "--set width: expected NAME=VALUE"), (("--seeds", "0"), "--seeds"), ((), "missing option '--train'")],
)
def test_what_cannot_be_asked_is_said_at_once(eyas, tmp_path, more, said):
    begin = ("--train", str(tmp_path / "a")) if more else ()
    refused = eyas("evaluate", *begin, "--model", "mf", "--out", str(tmp_path), *more)
    assert refused.exit_code == 2
    assert said in refused.output


def test_a_runs_report_is_a_table_and_files(eyas, platform, tmp_path):
    one = {"mean": 0.1342, "std": 0, "seeds": 1, "values": [0.1342], "interval": [0.1251, 0.1437]}
    parts = {"cold_users": {"rule": "few", "cases": 3, "users": 3, "metrics": {"hr@10": one | {"interval": None}}}}
    report = {
        "model": "candidate",
        "models": {
            "popularity": {"metrics": {"hr@10": one}, "slices": {}},
            "candidate": {"metrics": {"hr@10": one, "log_loss": {"mean": 0.5}}, "slices": parts},
        },
    }
    platform.says("GET /v1/runs/r1/evaluation", {"attempt": "r1-evaluate-1", "report": report, "page": "<p>±</p>"})
    lines = eyas("evaluation", "r1", "--to", tmp_path / "x").stdout.splitlines()
    assert lines[0].split() == ["METRIC", "POPULARITY", "CANDIDATE"]
    assert lines[1].split() == ["hr@10", "0.1342", "(0.1251", "to", "0.1437)", "0.1342", "(0.1251", "to", "0.1437)"]
    assert lines[2].split() == ["log_loss", "-", "0.5000"]
    assert lines[3].split() == ["hr@10{cold_users}", "-", "0.1342"]
    assert json.loads((tmp_path / "x" / "report.json").read_text()) == report
    assert (tmp_path / "x" / "report.html").read_text() == "<p>±</p>"
    assert json.loads(eyas("evaluation", "r1", "--json").stdout) == report
    (tmp_path / "file").write_text("")
    assert "cannot write: " in eyas("evaluation", "r1", "--to", tmp_path / "file" / "y").stderr


def test_modules_are_allowed_by_name_and_by_naming_a_family_of_theirs(eyas, tool, tmp_path, spec_file):
    asked, answers = tool
    answers += [ToolAnswer(fault="enough", code=2)] * 3
    files = ("--train", tmp_path / "a", "--out", tmp_path / "o")
    eyas("evaluate", *files, "--model", "acme.fading:Fading", "--model", "mf", "--saved", tmp_path / "m", "--allow", "acme.more")
    assert asked.pop()[1].allow == ("acme.more", "acme.fading")
    with spec_file.open("a") as file:
        file.write('model: {family: "acme.fading:Fading"}\n')
    for command in ("train", "tune"):
        eyas(command, spec_file, *files)
        assert asked.pop()[1].allow == ()
