"""`eyas train` with a neural model: a killed training goes on and ends with the same weights, and the unit scores as training did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.scorers import onnx_session
from pipelines.models.neural.step import NeuralStep
from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from pipelines.trials.saved_model import read_saved_model
from pipelines.trials.train import train
from shared.contracts.card import CARD, Exported
from shared.contracts.strict import read
from shared.contracts.tuning import TRAINED, TRAINING
from shared.serving.signature import Signature
from tests.support.taste_table import likes

MLP = {"family": "mlp", "params": {"width": 4, "layers": [8]}, "train": {"epochs": 1}}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Ids begin with 1,000, so that they are no places."""
    train_part, test, _ = cut(PairFile("likes", likes().with_columns(pl.col("user") + 1000, pl.col("item") + 5000)), "random", 3)
    train_part.write_csv(tmp_path / "train.csv")
    test.write_csv(tmp_path / "test.csv")
    return tmp_path


def told(world: Path, **more: Any) -> dict[str, Any]:
    return {"train": str(world / "train.csv"), "out": str(world / "m"), "name": "mlp", "model": MLP} | more


def answered(folder: Path, users: list[int], items: list[int]) -> Any:
    served = read(Signature, json.loads((folder / "1/signature.json").read_text()), "signature.json")
    asked = {served.user: np.array(users, np.int64), served.item: np.array(items, np.int64)}
    return onnx_session(folder / "1" / served.file).run([served.output], asked)[0]


@pytest.mark.requirement("N-01")
def test_the_served_unit_takes_the_files_ids_and_scores_as_training_did(world: Path) -> None:
    found = train(told(world, name="mlp", model=MLP))
    assert found.parity < 1e-5
    served = Path(found.served)
    assert served.name == "eyas-mlp"
    config = (served / "config.pbtxt").read_text()
    assert 'backend: "onnxruntime"' in config and 'name: "eyas-mlp"' in config and "versions: 1" in config

    saved_model = read_saved_model(world / "m" / TRAINED)
    users, items = [1003, 1000, 7], [5001, 5149, 5001]
    places = {"user": saved_model.users.places(pl.Series(users)), "item": saved_model.items.places(pl.Series(items))}
    codes = {side: saved_model.graph.key(side).state.coded(pl.Series(place)) for side, place in places.items()}
    assert answered(served, users, items) == pytest.approx(saved_model.model.score(codes), abs=1e-6)
    assert read(Exported, json.loads((world / "m" / CARD).read_text()), CARD).model["family"] == "mlp"
    training = json.loads((world / "m" / TRAINING).read_text())
    assert training["data"]["users"] == 80 and training["metrics"] and training["model"]["family"] == "mlp"


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
