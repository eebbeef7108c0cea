"""`eyas train`: what it writes serves, is judged again, and is whole or not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.scorers import onnx_session
from pipelines.models.neural.step import NeuralStep
from pipelines.trials.evaluate import evaluate
from pipelines.trials.files import Pairs
from pipelines.trials.holdout import cut
from pipelines.trials.kept import read_kept
from pipelines.trials.train import train
from shared.contracts.card import CARD, Exported
from shared.contracts.strict import read
from shared.contracts.tuning import TRAINED, TRAINING
from shared.domain.errors import EyasError
from shared.serving.signature import Signature
from tests.likes import likes

MF = {"family": "mf", "params": {"width": 4, "regularisation": 0.01, "sweeps": 2}}
MLP = {"family": "mlp", "params": {"width": 4, "layers": [8]}, "train": {"epochs": 1}}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Ids begin with 1,000, so that they are no places."""
    train_part, test, _ = cut(Pairs("likes", likes().with_columns(pl.col("user") + 1000, pl.col("item") + 5000)), "random", 3)
    train_part.write_csv(tmp_path / "train.csv")
    test.write_csv(tmp_path / "test.csv")
    return tmp_path


def told(world: Path, **more: Any) -> dict[str, Any]:
    return {"train": str(world / "train.csv"), "out": str(world / "m"), "name": "mf", "model": MF} | more


def answered(folder: Path, users: list[int], items: list[int]) -> Any:
    served = read(Signature, json.loads((folder / "1/signature.json").read_text()), "signature.json")
    asked = {served.user: np.array(users, np.int64), served.item: np.array(items, np.int64)}
    return onnx_session(folder / "1" / served.file).run([served.output], asked)[0]


@pytest.mark.requirement("N-01")
@pytest.mark.parametrize(("name", "model"), [("mf", MF), ("mlp", MLP), ("popularity", {"family": "popularity"})])
def test_the_served_unit_takes_the_files_ids_and_scores_as_training_did(world: Path, name: str, model: dict[str, Any]) -> None:
    found = train(told(world, name=name, model=model))
    assert found.parity < 1e-5
    served = Path(found.served)
    assert served.name == f"eyas-{name}"
    config = (served / "config.pbtxt").read_text()
    assert 'backend: "onnxruntime"' in config and f'name: "eyas-{name}"' in config and "versions: 1" in config

    kept = read_kept(world / "m" / TRAINED)
    users, items = [1003, 1000, 7], [5001, 5149, 5001]
    places = {"user": kept.users.places(pl.Series(users)), "item": kept.items.places(pl.Series(items))}
    codes = {side: kept.graph.key(side).state.coded(pl.Series(place)) for side, place in places.items()}
    assert answered(served, users, items) == pytest.approx(kept.model.score(codes), abs=1e-6)
    assert read(Exported, json.loads((world / "m" / CARD).read_text()), CARD).model["family"] == name
    training = json.loads((world / "m" / TRAINING).read_text())
    assert training["data"]["users"] == 80 and training["metrics"] and training["model"]["family"] == name


@pytest.mark.requirement("N-05")
def test_a_trained_model_is_judged_alone_as_evaluate_judges_the_same_training(world: Path) -> None:
    train(told(world, seed=1))
    files = {"train": str(world / "train.csv"), "test": str(world / "test.csv")}
    evaluate(files | {"saved": (str(world / "m"),), "out": str(world / "a")})
    evaluate(files | {"models": ("mf",), "settings": MF["params"], "out": str(world / "b")})
    alone, trained = (json.loads((world / one / "report.json").read_text()) for one in ("a", "b"))
    assert alone["hr@10"]["mean"] == pytest.approx(trained["hr@10"]["mean"], abs=1e-6)
    assert "train" not in alone["models"]["m"]["minutes"]


def test_a_killed_training_goes_on_and_ends_as_if_nobody_had_disturbed_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    model = MLP | {"train": {"epochs": 6, "batch_size": 64, "checkpoint": {"steps": 9}}}
    train(told(world, model=model, out=str(world / "calm")))
    whole, steps = NeuralStep.__call__, iter(range(100))

    def mortal(self: NeuralStep, batch: Any) -> Any:
        if next(steps) == 60:
            raise Killed
        return whole(self, batch)

    monkeypatch.setattr(NeuralStep, "__call__", mortal)
    with pytest.raises(Killed):
        train(told(world, model=model))
    assert {one.name for one in (world / "m").iterdir()} == {".kept"}
    monkeypatch.setattr(NeuralStep, "__call__", whole)
    train(told(world, model=model))
    assert {one.name for one in (world / "m").iterdir()} == {one.name for one in (world / "calm").iterdir()}
    (resumed,) = json.loads((world / "m" / TRAINING).read_text())["report"]["resumed"]
    assert (resumed["epoch"] - 1) * 100 + resumed["step"] > 0
    ours, theirs = (np.load(world / one / TRAINED / "weights.npz", allow_pickle=False) for one in ("m", "calm"))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs.files)


def test_what_was_trained_on_a_file_is_not_judged_by_a_part_of_it(world: Path) -> None:
    train(told(world))
    with pytest.raises(EyasError, match=r"it was trained on all of .*: say --test FILE"):
        evaluate({"train": str(world / "train.csv"), "saved": (str(world / "m"),), "out": str(world / "a")})


def test_text_ids_stand_beside_the_model_and_the_unit_takes_their_places(world: Path) -> None:
    words = pl.read_csv(world / "train.csv").with_columns(pl.format("u{}", "user").alias("user"), pl.format("i{}", "item").alias("item"))
    words.write_csv(world / "words.csv")
    found = train(told(world, train=str(world / "words.csv")))
    train(told(world, out=str(world / "n")))
    kept = read_kept(world / "m" / TRAINED)
    user, item = int(kept.users.places(pl.Series(["u1003"]))[0]), int(kept.items.places(pl.Series(["i5001"]))[0])
    assert answered(Path(found.served), [user], [item]) == pytest.approx(answered(world / "n/triton/eyas-mf", [1003], [5001]), abs=1e-5)


def test_a_seed_decides_the_model(world: Path) -> None:
    found = [train(told(world, out=str(world / name), seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    scores = [answered(Path(one.served), [1003] * 5, list(range(5000, 5005))) for one in found]
    assert scores[0] == pytest.approx(scores[1], abs=1e-7)
    assert np.abs(scores[0] - scores[2]).max() > 1e-6


def test_training_again_replaces_what_a_training_has_written_and_nothing_else(world: Path) -> None:
    train(told(world))
    train(told(world, name="popularity", model={"family": "popularity"}))
    assert [one.name for one in (world / "m/triton").iterdir()] == ["eyas-popularity"]
    assert not [one for one in (world / "m").iterdir() if one.name.startswith(".")]
    (world / "other").mkdir()
    (world / "other" / "thesis.txt").write_text("")
    with pytest.raises(EyasError, match=r"it holds 'thesis\.txt', which no training has written"):
        train(told(world, out=str(world / "other")))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": {"family": "mf", "params": {"width": 0}}}, "model: params.width: expected at least 1, got 0"),
        ({"train": "/none.csv"}, "/none.csv: there is no such file"),
        ({"min_interactions": 10_000}, "no user has 10000 items"),
    ],
)
def test_what_cannot_be_trained_leaves_nothing(world: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(EyasError) as refused:
        train(told(world, **more))
    assert said in str(refused.value)
    assert not list((world / "m").iterdir()) if (world / "m").exists() else True
    with pytest.raises(EyasError, match="it can't be written to"):
        train(told(world, out=str(world / "train.csv" / "x")))
