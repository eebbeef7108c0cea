"""`eyas train`: what it writes serves, is judged again, and is whole or not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.evaluation.scorers import onnx_session
from pipelines.trials.cases import TrainingPairs
from pipelines.trials.evaluate import evaluate
from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from pipelines.trials.saved_model import keep, read_saved_model
from pipelines.trials.train import train
from shared.contracts.card import CARD, Exported
from shared.contracts.strict import read
from shared.contracts.tuning import TRAINED, TRAINING
from shared.domain.errors import EyasError
from shared.serving.signature import Signature
from tests.support.taste_table import likes

MF = {"family": "mf", "params": {"width": 4, "regularisation": 0.01, "sweeps": 2}}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Ids begin with 1,000, so that they are no places."""
    train_part, test, _ = cut(PairFile("likes", likes().with_columns(pl.col("user") + 1000, pl.col("item") + 5000)), "random", 3)
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
@pytest.mark.parametrize(("name", "model"), [("mf", MF), ("popularity", {"family": "popularity"})])
def test_the_served_unit_takes_the_files_ids_and_scores_as_training_did(world: Path, name: str, model: dict[str, Any]) -> None:
    found = train(told(world, name=name, model=model))
    assert found.parity < 1e-5
    served = Path(found.served)
    assert served.name == f"eyas-{name}"
    config = (served / "config.pbtxt").read_text()
    assert 'backend: "onnxruntime"' in config and f'name: "eyas-{name}"' in config and "versions: 1" in config

    saved_model = read_saved_model(world / "m" / TRAINED)
    users, items = [1003, 1000, 7], [5001, 5149, 5001]
    places = {"user": saved_model.users.places(pl.Series(users)), "item": saved_model.items.places(pl.Series(items))}
    codes = {side: saved_model.graph.key(side).state.coded(pl.Series(place)) for side, place in places.items()}
    assert answered(served, users, items) == pytest.approx(saved_model.model.score(codes), abs=1e-6)
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


def test_what_was_trained_on_a_file_is_not_judged_by_a_part_of_it(world: Path) -> None:
    train(told(world))
    with pytest.raises(EyasError, match=r"the model was trained on all of .*, holdout included: add --test FILE"):
        evaluate({"train": str(world / "train.csv"), "saved": (str(world / "m"),), "out": str(world / "a")})


def test_text_ids_stand_beside_the_model_and_the_unit_takes_their_places(world: Path) -> None:
    words = pl.read_csv(world / "train.csv").with_columns(pl.format("u{}", "user").alias("user"), pl.format("i{}", "item").alias("item"))
    words.write_csv(world / "words.csv")
    found = train(told(world, train=str(world / "words.csv")))
    train(told(world, out=str(world / "n")))
    saved_model = read_saved_model(world / "m" / TRAINED)
    user, item = int(saved_model.users.places(pl.Series(["u1003"]))[0]), int(saved_model.items.places(pl.Series(["i5001"]))[0])
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
    with pytest.raises(EyasError, match=r"it has 'thesis\.txt', which is not a file of 'eyas train'"):
        train(told(world, out=str(world / "other")))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": {"family": "mf", "params": {"width": 0}}}, "model: params.width: expected at least 1, got 0"),
        ({"train": "/none.csv"}, "/none.csv: file not found"),
        ({"min_interactions": 10_000}, "no user has 10000 items"),
    ],
)
def test_what_cannot_be_trained_leaves_nothing(world: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(EyasError) as refused:
        train(told(world, **more))
    assert said in str(refused.value)
    assert not list((world / "m").iterdir()) if (world / "m").exists() else True
    with pytest.raises(EyasError, match="cannot write to the folder"):
        train(told(world, out=str(world / "train.csv" / "x")))


def _rewritten(path: Path, **more: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


def _arrays(path: Path, change: Any) -> None:
    with np.load(path) as stored:
        found = {name: change(stored[name]) for name in stored.files}
    np.savez(path, **found)


def _pickled(path: Path) -> None:
    np.savez(path, **dict.fromkeys(("users", "items"), np.array([{"a": 1}], object)))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "half a model.json": lambda kept: (kept / "model.json").write_text("{half"),
    "another model.json": lambda kept: (kept / "model.json").write_text("[]"),
    "a family of another release": lambda kept: _rewritten(kept / "model.json", family="oracle"),
    "a model.json of another family": lambda kept: _rewritten(kept / "model.json", family="mlp"),
    "half a features.json": lambda kept: (kept / "features.json").write_bytes(b"\xff{"),
    "features.json of another format": lambda kept: _rewritten(kept / "features.json", version=1),
    "features.json without state": lambda kept: _rewritten(kept / "features.json", state=[]),
    "half an archive": lambda kept: (kept / "vectors.npz").write_bytes((kept / "vectors.npz").read_bytes()[:100]),
    "no archive": lambda kept: (kept / "vectors.npz").unlink(),
    "pickled objects": lambda kept: _pickled(kept / "vectors.npz"),
    "arrays that are too short": lambda kept: _arrays(kept / "vectors.npz", lambda one: one[:3]),
    "arrays that are too long": lambda kept: _arrays(kept / "vectors.npz", lambda one: np.concatenate([one, one])),
    "half a vocabulary": lambda kept: (kept / "vocabulary.user.parquet").write_bytes(b"PAR1"),
    "half of the ids": lambda kept: (kept / "ids.items.parquet").write_bytes(b"PAR1"),
    "ids of other columns": lambda kept: pl.DataFrame({"x": [1]}).write_parquet(kept / "ids.users.parquet"),
    "fewer ids than codes": lambda kept: pl.DataFrame({"id": [1, 2]}).write_parquet(kept / "ids.users.parquet"),
}


@pytest.mark.requirement("N-05")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning")  # numpy leaves it open
def test_a_damaged_model_ends_in_a_line_that_names_it_and_writes_no_report(world: Path) -> None:
    train(told(world))
    for what, damage in DAMAGE.items():
        folder = world / what
        shutil.copytree(world / "m", folder)
        damage(folder / TRAINED)
        asked = {"train": str(world / "train.csv"), "test": str(world / "test.csv"), "saved": (str(folder),), "out": str(world / "out")}
        with pytest.raises(EyasError) as refused:
            evaluate(asked)
        assert str(refused.value).startswith(f"--saved {folder}") and refused.value.status < 500, what
    assert not (world / "out").exists(), "told before anything is trained"


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize("said", ["{", "[]", "{}"])
def test_a_damaged_training_json_ends_in_a_line(world: Path, said: str) -> None:
    train(told(world))
    (world / "m" / TRAINING).write_text(said)
    with pytest.raises(EyasError, match=f"^--saved {world / 'm'}: the files are damaged"):
        evaluate({"train": str(world / "train.csv"), "saved": (str(world / "m"),), "out": str(world / "out")})


@pytest.mark.requirement("N-05")
def test_a_saved_model_cant_stand_in_the_place_of_the_baseline(world: Path) -> None:
    train(told(world, out=str(world / "popularity")))
    asked = {"train": str(world / "train.csv"), "test": str(world / "test.csv"), "saved": (str(world / "popularity"),)}
    with pytest.raises(EyasError, match="the folder name 'popularity' is reserved for the baseline"):
        evaluate(asked | {"out": str(world / "out")})


@pytest.mark.requirement("N-05")
def test_a_model_that_is_kept_again_is_whole_or_is_none(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(told(world))
    folder, before = world / "m" / TRAINED, read_saved_model(world / "m" / TRAINED)
    (folder / "notes.txt").write_text("somebody's")
    training_pairs = TrainingPairs(before.users, before.items, np.empty(0, np.int64), np.empty(0, np.int64))

    def full(folder: Path) -> None:
        (folder / "features.json").write_text("{")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(before.graph), "save", lambda self, folder: full(folder))
        with pytest.raises(OSError, match="No space left"):
            keep(folder, before.model, before.graph, training_pairs)
    assert read_saved_model(folder).users.ids.equals(before.users.ids), "what was there is as it was"
    keep(folder, before.model, before.graph, training_pairs)
    assert read_saved_model(folder).users.ids.equals(before.users.ids)
    assert (folder / "notes.txt").exists() and [one.name for one in folder.parent.glob(".*")] == []
