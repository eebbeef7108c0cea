"""A transformer over users' sequences: it says what comes next; the same scores wherever they are computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pytest
from pydantic import ValidationError

from pipelines.features.columns import FIRST, NULL, UNKNOWN
from pipelines.models import session
from pipelines.models.attention import plain
from pipelines.models.attention.learning import SequenceStep
from pipelines.models.attention.shape import ITEMS as VECTORS
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.attention.windows import Windows
from pipelines.models.families import load_model
from pipelines.models.family import MODEL, ScoresAll, Task
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.step import How
from pipelines.models.neural.weights import WEIGHTS
from pipelines.models.session import QUERIES, SEQUENCES, Session, SessionModel, newest_of, sequences_at_once, sequences_of
from pipelines.training.keeping import Keeping, rests_on
from shared.artifacts import FsspecLive
from shared.contracts.families import SessionParams
from shared.contracts.stage import File
from shared.domain.errors import EyasError, Invalid
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


def met() -> dict[str, Any]:
    """Every pair of codes, those of nobody and nothing among them."""
    users, items = np.meshgrid(np.arange(USERS + FIRST), np.arange(ITEMS + FIRST), indexing="ij")
    return {"user": users.ravel().astype(np.int32), "item": items.ravel().astype(np.int32)}


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


@pytest.mark.requirement("G-20", "T-12")
def test_scores_are_the_same_pair_by_pair_of_all_at_once_by_vectors_and_as_served(model: SessionModel) -> None:
    columns = met()
    scores = model.score(columns)
    assert isinstance(model, ScoresAll)
    np.testing.assert_allclose(model.every(np.arange(USERS + FIRST, dtype=np.int32)).ravel(), scores, atol=1e-4)
    unit = onnxruntime.InferenceSession(model.lower().SerializeToString())
    (served,) = unit.run(None, columns)
    np.testing.assert_allclose(served, scores, atol=1e-5)
    found = model.embeddings({"item": np.arange(ITEMS + FIRST, dtype=np.int32)})
    np.testing.assert_allclose((found.queries @ found.vectors.T).ravel(), scores, atol=1e-4)


@pytest.mark.requirement("G-20")
def test_whoever_is_not_known_is_the_empty_sequence_and_what_is_not_known_stands_last(model: SessionModel) -> None:
    empty = plain.states(model.shape, model.weights, np.zeros((1, 1), np.int32))[0]
    np.testing.assert_allclose(model.queries[[NULL, UNKNOWN]], np.stack([empty, empty]), atol=1e-6)
    vectors = session.item_vectors(model.weights)
    assert (vectors[:FIRST, :-1] == 0).all() and (vectors[:FIRST, -1] == vectors[FIRST:, -1].min()).all()


def test_a_sequence_is_in_the_order_of_times_and_of_equal_times_in_that_of_the_rows(tmp_path: Path) -> None:
    given = task(tmp_path)
    rows = {"user": [5, 5, 5, 5, 5], "time": [2.0, 1.0, 2.0, 1.0, 0.0], "label": [1, 1, 1, 1, 0], "item_row": [7, 3, 2, 9, 1]}
    frame = pl.DataFrame(rows | {"user_code": [7] * 5, "item": rows["item_row"]}).cast({"user_code": pl.Int32, "item_row": pl.Int32})
    frame.write_parquet(tmp_path / "few.parquet")
    found = sequences_of(given, tmp_path / "few.parquet", None)
    assert (found.of(7) - FIRST).tolist() == [3, 9, 7, 2], "what wasn't liked is left out"
    assert newest_of(found, 3)[7].tolist() == [11, 9, 4] and newest_of(found, 6)[7].tolist() == [5, 11, 9, 4, 0, 0]


def test_what_is_kept_scores_as_what_was_trained(model: SessionModel, tmp_path: Path) -> None:
    files = model.save(tmp_path)
    assert set(files) == {MODEL, WEIGHTS, QUERIES, SEQUENCES}
    found = load_model(lambda name: files[name])
    np.testing.assert_array_equal(found.score(met()), model.score(met()))
    assert found.tables == model.tables


DAMAGE: dict[str, Callable[[Path], object]] = {
    "queries of another width": lambda folder: np.save(folder / QUERIES, np.zeros((USERS + FIRST, 3), np.float32)),
    "queries of other users": lambda folder: np.save(folder / QUERIES, np.zeros((5, 16), np.float32)),
    "another shape": lambda folder: _described(folder, width=8),
    "more blocks": lambda folder: _described(folder, blocks=2),
}


def _described(folder: Path, **more: Any) -> None:
    said = json.loads((folder / MODEL).read_text())
    said["transformer"] |= more
    (folder / MODEL).write_text(json.dumps(said))


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize("what", DAMAGE)
def test_files_that_are_not_of_one_model_are_told(model: SessionModel, tmp_path: Path, what: str) -> None:
    model.save(tmp_path)
    DAMAGE[what](tmp_path)
    with pytest.raises(EyasError, match=r"isn't as model.json says: the files are not of one model"):
        load_model(lambda name: tmp_path / name)


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
    with pytest.raises(Invalid, match="width, blocks, heads, length and objective are the parent's in a warm run"):
        Session().train(replace(given, model=task(tmp_path / "wide", width=32).model))
    with pytest.raises(Invalid, match="width, blocks, heads, length and objective are the parent's in a warm run"):
        Session().train(replace(given, model=task(tmp_path / "heads", heads=4).model))


class Killed(Exception):
    pass


@pytest.mark.requirement("N-05")
def test_a_killed_training_goes_on_to_the_same_weights_to_the_last_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = task(tmp_path, dropout=0.2, train={"epochs": 4, "checkpoint": {"every": "1h", "steps": 2}})
    whole = trained(given).weights

    def keeping(attempt: str) -> Keeping:
        folder = tmp_path / attempt
        folder.mkdir()
        files = {"etl": {"train.parquet": File(sha256="a" * 64, size=1)}}
        return Keeping(FsspecLive(str(tmp_path / "store"), attempt), rests_on(given.model, "full", files), folder, given.log)

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
        feed = Windows(Path("none"), sequences, shape, 30, 3, draw=draw)
        step = SequenceStep(framework, shape, begin(shape, 7), How("sgd", 0.5), 0.0, draw is not None, _nothing)
        losses.append([float(step(replace(batch, columns=_but_drawn(batch.columns, draw)))) for batch, _ in feed.placed(0)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)


def _nothing(*_: Any) -> Any:
    raise AssertionError


def _but_drawn(columns: dict[str, Any], draw: int | None) -> dict[str, Any]:
    return columns if draw is None else columns | {"drawn": np.arange(FIRST, ITEMS + FIRST, dtype=np.int32)}


@pytest.mark.requirement("N-05")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"heads": 3}, "3 heads don't divide a width of 64"),
        ({"mask": 0.5}, "'mask' has no effect with objective 'next'"),
        ({"length": 0}, "greater than or equal to 1"),
        ({"objective": "both"}, "'next' or 'masked'"),
    ],
)
def test_parameters_that_cant_be_are_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SessionParams.model_validate(params)


@pytest.mark.requirement("G-25", "N-05")
def test_what_a_step_can_hold_is_known_before_anything_is_trained() -> None:
    few, long = SessionParams(length=49), SessionParams(length=199)
    assert sequences_at_once(None, few, 1_700).size == session.WINDOWS
    assert sequences_at_once(None, long, 16_000).size == 20
    assert sequences_at_once(7, long, None).size == 7
    with pytest.raises(Invalid, match=r"4,096 sequences of 200 items, each to be chosen among 16,000, take 52.4 GB"):
        sequences_at_once(4096, long, 16_000)
    with pytest.raises(Invalid, match=r"1 sequences of 1,001 items, each to be chosen among 1,000,000, take 4.0 GB"):
        sequences_at_once(None, SessionParams(length=1000, against=1_000_000), 2_000_000)


def test_likes_of_nobody_known_are_refused(tmp_path: Path) -> None:
    given = task(tmp_path)
    pl.read_parquet(given.rows).with_columns(user_code=pl.lit(UNKNOWN, pl.Int32)).write_parquet(given.rows)
    with pytest.raises(Invalid, match="'session' learns from likes, and no known user liked a known item"):
        Session().train(given)
