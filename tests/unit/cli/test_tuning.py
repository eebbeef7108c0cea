"""`eyas train` and `eyas tune`: requests to the tools, how their answers are shown, and what is refused at once."""

import json

import pytest

from shared.contracts.datatools import ToolAnswer
from shared.contracts.ranges import between, one_of
from shared.contracts.tuning import TrainRequest, TuneRequest


def row(number, value, **params):
    return {"number": number, "params": {f"params.{name}": one for name, one in params.items()}, "state": "done", "value": value}


FOUND = {
    "metric": "ndcg@10",
    "best": [row(3, 0.21234, width=64, layers=[8, 4]), row(0, 0.2)],
    "default": row(0, 0.2),
    "done": 5,
    "failed": 1,
    "gain": {"metric": "ndcg@10", "before": 0.19, "after": 0.2},
    "stopped": True,
    "files": ["/x/best.yaml", "/x/tune.json", "/x/tune.html"],
}


@pytest.mark.requirement("N-01")
def test_everything_that_is_said_is_asked(eyas, tool, tmp_path):
    asked, answers = tool
    answers.append(ToolAnswer(found=FOUND))
    a, out = str(tmp_path / "a.csv"), str(tmp_path / "out")
    begin = (
        "tune",
        "--train",
        a,
        "--model",
        "mf",
        "--out",
        out,
        "--set",
        "unobserved=0.1",
        "--test",
        a,
        "--trials",
        "7",
        "--minutes",
        "2.5",
    )
    ranges = ("width=32..256", "params.regularisation=1e-4..1e-2:log", "loss=als,softmax", "layers=[8],[8,4]", "train.epochs=5,10")
    shown = eyas(*begin, "--metric", "hr@10/99", "--seed", "4", *(part for one in ranges for part in ("--search", one))).stdout
    name, request = asked.pop()
    assert name == "tune"
    assert request == TuneRequest(
        train=a,
        name="mf",
        model={"family": "mf", "params": {"unobserved": 0.1}},
        ranges={
            "params.width": between(32, 256),
            "params.regularisation": between(1e-4, 1e-2, log=True),
            "params.loss": one_of("als", "softmax"),
            "params.layers": one_of([8], [8, 4]),
            "train.epochs": one_of(5, 10),
        },
        test=a,
        trials=7,
        minutes=2.5,
        metric="hr@10/99",
        seed=4,
        out=out,
    )
    assert isinstance(request.ranges["params.width"].low, int)
    lines = shown.splitlines()
    assert lines[0].split() == ["TRIAL", "NDCG@10", "WIDTH", "LAYERS"]
    assert lines[1].split() == ["4", "0.2123", "64", "[8,", "4]"]
    assert lines[2].split()[:2] == ["1", "0.2000"]
    assert lines[3:] == [
        "1 of 6 trials failed",
        "on the test pairs: ndcg@10 0.2000, 0.1900 with the original settings",
        "the time is over: the same command continues the search",
        *FOUND["files"],
    ]


def test_a_spec_says_the_model_and_its_ranges(eyas, tool, tmp_path, spec_file):
    asked, answers = tool
    answers += [ToolAnswer(found=FOUND)] * 2
    with spec_file.open("a") as file:
        file.write("model: {family: mf, params: {width: 48}, tune: {params.width: {from: 8, to: 64, log: true}}}\n")
    what = ("tune", spec_file, "--train", tmp_path / "a", "--out", tmp_path / "o")
    assert eyas(*what, "--set", "sweeps=3").exit_code == 0
    request = asked.pop()[1]
    assert (request.name, request.model) == ("m", {"family": "mf", "params": {"width": 48, "sweeps": 3}})
    assert request.ranges == {"params.width": between(8, 64, log=True)}
    assert eyas(*what, "--search", "sweeps=2..4").exit_code == 0
    assert set(asked.pop()[1].ranges) == {"params.sweeps"}
    answers.append(ToolAnswer(found=FOUND))
    assert eyas("tune", "--model", "mlp", *what[2:], "--set", "framework=torch", "--set", "train.epochs=2").exit_code == 0
    assert asked.pop()[1].model == {"family": "mlp", "framework": "torch", "train": {"epochs": 2}}


@pytest.mark.requirement("N-01")
def test_a_training_is_asked_for_and_shown(eyas, tool, tmp_path, spec_file):
    asked, answers = tool
    found = {"seconds": 1.5, "metrics": {"train.loss": 0.25}, "parity": 1e-7, "model": "/m", "served": "/s", "training": "/t"}
    answers += [ToolAnswer(found=found)] * 2
    done = eyas("train", "--train", tmp_path / "a", "--model", "mf", "--set", "width=8", "--seed", "3", "--out", tmp_path / "o")
    assert asked.pop() == (
        "train",
        TrainRequest(train=str(tmp_path / "a"), name="mf", model={"family": "mf", "params": {"width": 8}}, seed=3, out=str(tmp_path / "o")),
    )
    assert done.stdout.splitlines()[1].split() == ["train.loss", "0.25"]
    assert done.stdout.splitlines()[-3:] == ["/m", "/s", "/t"]
    with spec_file.open("a") as file:
        file.write("model: {family: mf, train: {seed: 9}}\n")
    shown = eyas("train", spec_file, "--train", tmp_path / "a", "--out", tmp_path / "o", "--json")
    assert json.loads(shown.stdout)["parity"] == 1e-7
    assert asked.pop()[1].model == {"family": "mf", "train": {"seed": 9}}


INVALID = (
    (("--search", "width"), "--search width: expected NAME=FROM..TO"),
    (("--search", "width="), "--search width=: expected NAME=FROM..TO"),
    (("--search", "width=1..x"), "--search width=1..x: expected two numbers"),
    (("--search", "width=9..1"), "--search width=9..1: 'from' must be less than 'to', got 9 and 1"),
    (("--search", "width=0..1:log"), "--search width=0..1:log: 'log' needs numbers above 0"),
    (("--search", "width=1e999..2"), "the number 1e999 is too large"),
    (("--search", "width=5"), "--search width=5: 'of' needs at least two values without repeats"),
    (("--search", "width=1..2", "--search", "params.width=3..4"), "--search: a setting is given twice"),
    (("--search", "width=1..2", "--set", "width=2"), "--search width: --set already fixes this setting; remove one of the two"),
    (("--set", "width"), "--set width: expected NAME=VALUE"),
    (("--set", "widht=2"), "did you mean 'width'?"),
    (("--model", "nmf"), "unknown model family 'nmf': did you mean 'mf'?"),
    (("--search", "framework=tensorflow,torch"), "a search has one framework; use --set framework=torch"),
    (("--set", "framework=mxnet"), "framework: expected 'tensorflow', 'torch' or 'jax', got 'mxnet'"),
    (("--set", "regularisation=NaN"), "params.regularisation"),
    (("--set", "width=" + "[" * 100_000), "params.width"),
    (("--search", f"width=1..{'0' * 5_000}"), "'from' must be less than 'to'"),
    (("--holdout", "first"), "--holdout"),
    (("--trials", "0"), "--trials"),
)


def test_an_invalid_search_is_refused_at_once(eyas, tool, tmp_path, subtests):
    for more, said in INVALID:
        with subtests.test(more=[one[:40] for one in more]):
            model = () if "--model" in more else ("--model", "mf")
            refused = eyas("tune", "--train", tmp_path / "a", "--out", tmp_path / "o", *model, *more)
            assert refused.exit_code == 2
            assert said in " ".join(refused.output.split())
            assert not tool[0]


@pytest.mark.parametrize("command", ["train", "tune"])
def test_one_model_and_a_folder_have_to_be_said(eyas, tmp_path, spec_file, command):
    what = (command, "--train", tmp_path / "a")
    for more, said in (
        (("--out", tmp_path), "set either SPEC or --model NAME"),
        (("--out", tmp_path, "--model", "mf", spec_file), "set either SPEC or --model NAME"),
        (("--model", "mf"), "--out: missing; set the folder to write to, such as --out model"),
        (("--out", tmp_path, tmp_path / "none.yaml"), "none.yaml"),
    ):
        refused = eyas(*what, *more)
        assert refused.exit_code == 2
        assert said in refused.output
