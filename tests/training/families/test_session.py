"""The session transformer is trained: it predicts the next item, in each of its ways, after a kill and in a warm run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.features.columns import FIRST
from pipelines.models import session
from pipelines.models.attention.learning import SequenceStep
from pipelines.models.attention.shape import ITEMS as VECTORS
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.attention.windows import Windows
from pipelines.models.family import Task
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.step import StepOptions
from pipelines.models.session import Session, SessionModel
from pipelines.training.checkpoints import CheckpointStore, rests_on
from shared.artifacts import FsspecLive
from shared.contracts.stage import File
from shared.domain.errors import Invalid
from tests.support.sequence_data import ITEMS, STEPS, USERS, ahead, by_user, pairs, task

EVERYBODY = np.arange(FIRST, USERS + FIRST, dtype=np.int32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SessionModel:
    return trained(task(tmp_path_factory.mktemp("journeys")))


def trained(given: Task) -> SessionModel:
    model = Session().train(given).model
    assert isinstance(model, SessionModel)
    return model


def told(model: SessionModel, users: Any = EVERYBODY) -> Any:
    """The item that each is told to take next."""
    return model.every(users)[:, FIRST:].argmax(axis=1)


@pytest.mark.requirement("G-20")
def test_it_tells_the_next_item_of_each_user_who_walks_on(model: SessionModel) -> None:
    assert (told(model) == ahead()).mean() > 0.95


@pytest.mark.requirement("G-20")
def test_it_learns_as_well_from_items_that_are_hidden_and_found_from_both_sides(tmp_path: Path) -> None:
    found = trained(task(tmp_path, objective="masked", mask=0.4, train={"epochs": 120}))
    assert (told(found) == ahead()).mean() > 0.9


@pytest.mark.requirement("G-16")
def test_reversed_sequences_teach_the_way_back_and_dont_confuse_the_way_on(tmp_path: Path) -> None:
    found = trained(task(tmp_path, reversed=True))
    assert (told(found) == ahead()).mean() > 0.95


def test_of_a_large_catalogue_a_step_chooses_among_a_sample(tmp_path: Path) -> None:
    found = trained(task(tmp_path, against=6, train={"epochs": 60}))
    assert (told(found) == ahead()).mean() > 0.95


@pytest.mark.requirement("G-09")
def test_a_warm_run_goes_on_from_the_parents_vectors_and_from_the_parents_sequences(model: SessionModel, tmp_path: Path) -> None:
    files = model.save(tmp_path)
    more = pairs(users=USERS + 6, items=ITEMS + 1, steps=2, shift=STEPS)
    some = more.take(np.flatnonzero((more.users < 20) | (more.users >= USERS)))
    given = replace(task(tmp_path / "warm", some, train={"epochs": 1, "learning_rate": 1e-6}), parent=lambda name: files[name])
    again = pl.read_parquet(given.rows).with_columns(pl.col("time") + 10_000)
    older = pl.read_parquet(task(tmp_path / "before").rows).filter(pl.col("user") < 4)
    pl.concat([older.select(again.columns), again]).write_parquet(given.rows)
    found = trained(given)
    np.testing.assert_allclose(found.weights[VECTORS][: ITEMS + FIRST], model.weights[VECTORS], atol=1e-3)
    np.testing.assert_allclose(found.weights[VECTORS][-1], model.weights[VECTORS][FIRST:].mean(axis=0), atol=0.2)
    kept = found.sequences.of(FIRST).tolist()
    assert kept == [*model.sequences.of(FIRST).tolist(), *(((np.array([0, 1]) + STEPS) % (ITEMS + 1)) + FIRST).tolist()][-8:]
    assert found.sequences.of(30).tolist() == model.sequences.of(30).tolist(), "nothing new of this user: all that is known stays"
    with pytest.raises(Invalid, match="width, blocks, heads, length and objective must be the parent's in a warm run"):
        Session().train(replace(given, model=task(tmp_path / "wide", width=32).model))
    with pytest.raises(Invalid, match="width, blocks, heads, length and objective must be the parent's in a warm run"):
        Session().train(replace(given, model=task(tmp_path / "heads", heads=4).model))


class Killed(Exception):
    pass


@pytest.mark.requirement("N-05")
def test_a_killed_training_goes_on_to_the_same_weights_to_the_last_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = task(tmp_path, dropout=0.2, train={"epochs": 4, "checkpoint": {"every": "1h", "steps": 2}})
    whole = trained(given).weights

    def keeping(attempt: str) -> CheckpointStore:
        folder = tmp_path / attempt
        folder.mkdir()
        files = {"etl": {"train.parquet": File(sha256="a" * 64, size=1)}}
        return CheckpointStore(FsspecLive(str(tmp_path / "store"), attempt), rests_on(given.model, "full", files), folder, given.log)

    calls, step = iter(range(100)), SequenceStep.__call__

    def until(self: SequenceStep, batch: Any) -> Any:
        if next(calls) == 8:
            raise Killed
        return step(self, batch)

    with monkeypatch.context() as patched:
        patched.setattr(SequenceStep, "__call__", until)
        with pytest.raises(Killed):
            Session().train(replace(given, keeping=keeping("train-1")))
    fitted = Session().train(replace(given, keeping=keeping("train-2")))
    assert isinstance(fitted.model, SessionModel)
    assert fitted.facts["resumed"]
    for path, array in whole.items():
        np.testing.assert_array_equal(fitted.model.weights[path], array)


@pytest.mark.requirement("N-05", "G-20")
def test_it_is_looked_at_by_the_newest_like_of_some_users_and_the_best_epoch_is_published(tmp_path: Path) -> None:
    stop = {"metric": "ndcg@10/99", "patience": 2}
    given = task(tmp_path, train={"epochs": 30, "validation": 0.4, "early_stop": stop})
    fitted = Session().train(given)
    ranked = fitted.metrics["train.validation_ndcg@10/99"]
    assert ranked > 0.8 and fitted.report is not None and len(fitted.report["epochs"]) <= 30
    rest, held = session.hold_out_newest(given.rows, 0.4, 1, _folder(tmp_path / "held"))
    newest = pl.read_parquet(given.rows).group_by("user").agg(pl.col("time").max())
    looked = pl.read_parquet(held)
    assert 8 < len(looked) < 32 and looked["user"].n_unique() == len(looked)
    assert looked.join(newest, on=["user", "time"], how="inner").height == len(looked)
    assert len(pl.read_parquet(rest)) + len(looked) == len(pl.read_parquet(given.rows))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_step_against_every_item_drawn_is_the_step_against_the_whole_catalogue() -> None:
    """The sample's correction is exact where nothing is left to chance."""
    shape, sequences = Shape(ITEMS + FIRST, 8, 1, 2, 5, "next"), by_user(pairs())
    framework, losses = load_framework("tensorflow"), []
    for draw in (None, ITEMS):
        feed = Windows(Path("none"), sequences, shape, 30, 3, sample=None if draw is None else _every)
        step = SequenceStep(framework, shape, begin(shape, 7), StepOptions("sgd", 0.5), 0.0, draw is not None, _nothing)
        losses.append([float(step(batch)) for batch, _ in feed.placed(0)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)


def _every(_: np.random.Generator) -> Any:
    return np.arange(FIRST, ITEMS + FIRST), np.zeros(ITEMS, np.float32)


def _nothing(*_: Any) -> Any:
    raise AssertionError
