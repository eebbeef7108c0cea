"""The loop: the best epoch is published, training ends when it helps no longer, and a killed one goes on as if nothing had been."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.inputs.batches import Batches, EpochPosition
from pipelines.models.family import Task
from pipelines.training.checkpoints import CheckpointStore, rests_on
from pipelines.training.loop import TrainingLoop
from pipelines.training.loss_monitor import LATE
from pipelines.training.trainer import Trainer, TrainingRequest, run
from shared.artifacts import FsspecLive
from shared.contracts.models import Model, Training
from shared.contracts.progress import Progress
from shared.contracts.stage import File
from shared.domain.errors import Invalid
from tests.support.training_tasks import Factors, task, write_rows

WANTS = TrainingRequest(negatives=2)


class Killed(BaseException):
    """As good as kill -9: nothing catches it."""


class Mortal(Factors):
    def __init__(self, dies_before: int, **more: Any) -> None:
        super().__init__(**more)
        self._dies_before = dies_before

    def __call__(self, batch: Any) -> float:
        if self.steps + 1 == self._dies_before:
            raise Killed
        return super().__call__(batch)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "train.parquet")


def _keeping(task: Task, folder: Path, attempt: str, data: str = "0") -> CheckpointStore:
    scratch = folder / f"scratch-{attempt}"
    scratch.mkdir(parents=True, exist_ok=True)
    live = FsspecLive(str(folder / "store"), attempt)
    files = {"etl": {"train.parquet": File(sha256=data * 64, size=1)}}
    return CheckpointStore(live, rests_on(task.model, "full", files), scratch, task.log)


def _equal(one: Factors, other: Factors) -> bool:
    return all(np.array_equal(one.arrays[name], values) for name, values in other.arrays.items())


def _numbers(course: Trainer[Any]) -> dict[str, Any]:
    """What doesn't depend on the clock."""
    return {name: value for name, value in course.metrics.items() if "seconds" not in name and not name.endswith("_s")}


@pytest.mark.requirement("T-01")
def test_batches_go_on_at_any_place_as_if_those_before_had_been_taken(rows: Path) -> None:
    given = task(rows)
    for size, negatives in ((100, 3), (999, 0), (40_000, 2)):
        batches = Batches(rows, given.graph, given.items, None, size, negatives, 5, pool=1500)
        whole = list(batches.placed(2))
        assert sum(len(batch) for batch, _ in whole) == batches.rows_per_epoch()
        for at in range(0, len(whole), max(1, len(whole) // 7)):
            rest = list(batches.placed(2, whole[at][1]))
            assert len(rest) == len(whole) - at - 1
            for (one, _), (other, _) in zip(rest, whole[at + 1 :], strict=True):
                assert np.array_equal(one.labels, other.labels)
                assert all(np.array_equal(one.columns[name], column) for name, column in other.columns.items())
        assert list(batches.placed(2, whole[-1][1])) == []
        assert len({place for _, place in whole}) == len(whole) and EpochPosition() not in {place for _, place in whole}


@pytest.mark.requirement("N-05")
def test_a_training_killed_again_and_again_ends_where_an_undisturbed_one_does(rows: Path, tmp_path: Path) -> None:
    look = {"validation": 0.1, "early_stop": {"metric": "ndcg@10/99", "patience": 6}, "epochs": 6}
    given = task(rows, **look, checkpoint={"steps": 7})
    calm = run(given, WANTS, lambda _: Factors())
    random, attempt, course = np.random.default_rng(4), 0, None
    while course is None:
        attempt += 1
        step = Mortal(int(random.integers(8, 40))) if attempt <= 10 else Factors()
        keeping = _keeping(given, tmp_path, f"r1-train-{attempt}")
        try:
            course = run(replace(given, keeping=keeping), WANTS, lambda _, step=step: step)  # type: ignore[misc]
        except Killed:
            assert not list((tmp_path / "store").rglob("*.part")), "nothing half lies under a name that is read"
    assert attempt > 4 and len(course.report.resumed) == attempt - 1
    assert _equal(course.step, calm.step)
    assert _numbers(course) == _numbers(calm)
    assert course.report.facts["losses"] == calm.report.facts["losses"] and course.facts["validation"] == calm.facts["validation"]
    assert (course.report.published, course.report.ended) == (calm.report.published, calm.report.ended)
    names = {path.parent.name for path in (tmp_path / "store").rglob("checkpoint.json")}
    assert names == {f"r1-train-{attempt}"}, "what earlier tries had kept went when this one had a checkpoint of its own"


@pytest.mark.parametrize("change", ["spec", "data", "batches", "damaged", "half", "off"])
def test_a_checkpoint_of_anything_else_is_left_alone(rows: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str) -> None:
    caplog.set_level(logging.INFO)
    changed_task = task(rows, checkpoint={"steps": 7})
    with pytest.raises(Killed):
        run(replace(changed_task, keeping=_keeping(changed_task, tmp_path, "r1-train-1")), WANTS, lambda _: Mortal(40))
    (document,) = (tmp_path / "store").rglob("checkpoint.json")
    wants, data, message = WANTS, "0", ""
    if change == "spec":
        changed_task, message = task(rows, checkpoint={"steps": 7}, learning_rate=0.03), "model.train.learning_rate is 0.03, was 0.02"
    elif change == "data":
        data, message = "1", "data: etl changed"
    elif change == "batches":
        wants, message = TrainingRequest(negatives=3), "batches changed"
    elif change == "off":
        changed_task = task(rows, checkpoint=None)
    else:
        state = next(document.parent.glob("state*"))
        content = state.read_bytes()
        state.write_bytes(content[: len(content) // 2] if change == "half" else content[:-9] + b"x" + content[-8:])
        message = "the checkpoint of r1-train-1 is damaged"
    step = Factors()
    course = run(replace(changed_task, keeping=_keeping(changed_task, tmp_path, "r1-train-2", data)), wants, lambda _: step)
    assert not course.report.resumed and message in caplog.text
    assert _equal(course.step, run(changed_task, wants, lambda _: Factors()).step)


def test_code_of_ones_own_is_part_of_what_a_checkpoint_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "bakery").mkdir()
    for place in ("bakery/__init__.py", "bakery/families.py", "corner_shop.py"):
        (tmp_path / place).write_text("RATE = 1\n")
    before = {name: rests_on(Model(family=name), "full", {})["code"] for name in ("mlp", "bakery.families:Bread", "corner_shop:Bread")}
    assert len(set(before.values())) == 3
    for place, name in (("bakery/families.py", "bakery.families:Bread"), ("corner_shop.py", "corner_shop:Bread")):
        (tmp_path / place).write_text("RATE = 2\n")
        assert rests_on(Model(family=name), "full", {})["code"] != before[name]
    assert rests_on(Model(), "full", {})["code"] == before["mlp"]


def test_a_checkpoint_is_due_after_a_time_or_so_many_steps(rows: Path, tmp_path: Path) -> None:
    kept: list[int] = []

    class Counting(FsspecLive):
        def keep(self, about: Any, files: Any) -> None:
            kept.append(about["losses"]["step"])
            super().keep(about, files)

    def steps(**checkpoint: Any) -> list[int]:
        """By a clock that goes on by a second whenever it is read."""
        kept.clear()
        one = task(rows, epochs=1, checkpoint=checkpoint)
        keeping = replace(_keeping(one, tmp_path, "r2-train-1"), live=Counting(str(tmp_path / "store"), f"r{len(str(checkpoint))}-train-1"))
        batches, seconds = Batches(rows, one.graph, one.items, None, 256, 2, 1), iter(range(10**6))
        TrainingLoop(
            Factors(), batches, one.model.train, logging.getLogger("test"), keeping=keeping, clock=lambda: float(next(seconds))
        ).run()
        return list(kept)

    given = task(rows, epochs=1)
    count = -(-Batches(rows, given.graph, given.items, None, 256, 2, 1).rows_per_epoch() // 256)
    assert steps(steps=10) == list(range(10, count + 1, 10))
    assert steps() == []
    assert steps(every="1s", steps=1000) == list(range(1, count + 1))
    later = steps(every="30s", steps=1000)
    assert 1 < len(later) < count / 2


class Scripted:
    """Looks that say what a test wants, and remember what they looked at."""

    rows = 10

    def __init__(self, **values: list[float]) -> None:
        self.values, self.step = values, Factors()
        self.states: list[dict[str, Any]] = []

    @property
    def looks(self) -> int:
        return len(self.states)

    def __call__(self) -> dict[str, float]:
        self.states.append(self.step.state())
        return {name: series[self.looks - 1] for name, series in self.values.items()}


def _loop(rows: Path, look: Scripted, **train: Any) -> tuple[Any, list[dict[str, Any]]]:
    """With the state at the end of each epoch."""
    training = Training.model_validate({"validation": 0.1, "batch_size": 512} | train)
    given, look.step = task(rows), Factors()
    step, states = look.step, look.states
    batches = Batches(rows, given.graph, given.items, None, 512, 0, 1)
    report = TrainingLoop(step, batches, training, logging.getLogger("test"), look).run()  # type: ignore[arg-type]
    assert all(np.array_equal(step.arrays[name], value) for name, value in states[report.published - training.validate_from].items())
    return report, states


@pytest.mark.requirement("N-05")
def test_the_best_epoch_is_published_and_training_ends_when_looks_get_no_better(rows: Path) -> None:
    aucs = [0.6, 0.7, 0.72, 0.71, 0.715, 0.719, 0.9]
    report, _ = _loop(rows, Scripted(loss=[1.0] * 7, auc=aucs), epochs=7, early_stop={"patience": 3})
    assert (report.published, len(report.epochs), report.metric) == (3, 6, "auc")
    assert report.ended == "auc did not improve in 3 validations"
    assert report.metrics["train.validation_auc"] == 0.72 and report.metrics["train.published_epoch"] == 3


def test_less_is_better_of_a_loss_and_a_change_too_small_does_not_count_but_is_published(rows: Path) -> None:
    losses = [0.5, 0.4, 0.399, 0.398, 0.397, 0.3]
    stop = {"metric": "loss", "patience": 2, "min_change": 0.01}
    report, _ = _loop(rows, Scripted(loss=losses), epochs=6, early_stop=stop)
    assert (report.published, len(report.epochs)) == (4, 4)
    slow = {"metric": "loss", "patience": 3, "min_change": 0.01}
    report, _ = _loop(rows, Scripted(loss=[0.5, 0.495, 0.492, 0.489, 0.485, 0.484]), epochs=6, early_stop=slow)
    assert (report.published, len(report.epochs)) == (6, 6), "small steps add up to one that counts"


def test_without_a_word_on_stopping_all_epochs_are_trained_and_the_best_one_published(rows: Path) -> None:
    report, states = _loop(rows, Scripted(loss=[1.0] * 4, auc=[0.6, 0.8, 0.7, 0.7]), epochs=4)
    assert (report.published, len(states), report.ended) == (2, 4, "all epochs are done")
    report, _ = _loop(rows, Scripted(loss=[0.5, 0.3, 0.4]), epochs=3)
    assert (report.published, report.metric) == (2, "loss"), "rows of one label have no AUC"
    with pytest.raises(Invalid, match=r"early_stop\.metric: auc cannot compare epochs: all held-out rows have the same label"):
        _loop(rows, Scripted(loss=[0.5]), epochs=3, early_stop={})


def test_looks_may_begin_later_and_numbers_that_are_none_stop_it(rows: Path) -> None:
    look = Scripted(loss=[1.0] * 2, auc=[0.8, 0.7])
    report, _ = _loop(rows, look, epochs=4, validate_from=3)
    assert (report.published, look.looks) == (3, 2) and not report.epochs[1].looked
    with pytest.raises(Invalid, match="the model's scores are not finite after epoch 1"):
        _loop(rows, Scripted(loss=[float("nan")], auc=[0.5]), epochs=2)


@pytest.mark.requirement("N-07")
def test_the_report_says_the_way_to_a_target(rows: Path) -> None:
    look = Scripted(loss=[1.0] * 4, auc=[0.6, 0.71, 0.8, 0.75])
    report, _ = _loop(rows, look, epochs=4, target={"metric": "auc", "value": 0.7})
    document = json.loads(json.dumps(report.document))
    assert document["target"]["epoch"] == 2 and report.metrics["train.target_epoch"] == 2
    one, two = report.epochs[:2]
    assert document["target"]["seconds"] == pytest.approx(one.seconds + one.look_seconds + two.seconds + two.look_seconds)
    assert document["published"] == {"epoch": 3, "of": 4, "best_by": {"metric": "auc", "value": 0.8}}
    assert [epoch["epoch"] for epoch in document["epochs"]] == [1, 2, 3, 4]
    assert all(epoch["rows_per_s"] > 0 and epoch["validation"]["rows_per_s"] > 0 for epoch in document["epochs"])
    missed, _ = _loop(rows, Scripted(loss=[1.0], auc=[0.6]), epochs=1, target={"value": 0.7})
    assert missed.document["target"] == {"metric": "auc", "value": 0.7, "epoch": None, "seconds": None}
    assert "train.target_epoch" not in missed.metrics


def test_a_training_that_breaks_says_so_within_some_steps(rows: Path) -> None:
    given, step = task(rows, epochs=50, batch_size=64), Factors(rate=4_000.0)
    with pytest.raises(
        Invalid,
        match=r"model\.train\.learning_rate: the loss (is not finite|diverges, .*) in epoch \d+, step \d+; 0\.02 with adam is too high",
    ):
        run(given, WANTS, lambda _: step)
    assert step.steps < 64 + 4 * LATE


def test_how_far_it_is_is_told_while_it_runs(rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    monkeypatch.setattr("pipelines.training.loop.REPORT_EVERY", 0.0)
    monkeypatch.setattr("pipelines.training.loop.LOG_EVERY", 0.0)
    monkeypatch.setattr(CheckpointStore, "tell", lambda self, progress: told.append(progress))
    given = task(rows, epochs=2, validation=0.1)
    run(replace(given, keeping=_keeping(given, tmp_path, "r1-train-1")), WANTS, lambda _: Factors())
    steps = told[0].steps
    assert [(one.epoch, one.step) for one in told] == [(epoch, step) for epoch in (1, 2) for step in (*range(1, steps + 1), steps)]
    last = told[-1]
    assert [one.epoch for one in last.history] == [1, 2] and set(last.history[1].validation) == {"loss", "auc"}
    assert last.seconds_left == 0 and all(one.rows_per_s > 0 for one in told)


def test_a_store_that_can_not_be_written_costs_the_checkpoints_and_not_the_training(
    rows: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FsspecLive, "keep", full)
    monkeypatch.setattr(FsspecLive, "tell", full)
    given = task(rows, epochs=1, checkpoint={"steps": 5})
    course = run(replace(given, keeping=_keeping(given, tmp_path, "r1-train-1")), WANTS, lambda _: Factors())
    assert "checkpoint: saving failed error=[Errno 28] No space left on device" in caplog.text
    assert _equal(course.step, run(given, WANTS, lambda _: Factors()).step)
