"""`eyas tune` on a small data set, with the worker's work in this process: what is searched, kept, resumed, judged and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pipelines.models.family import Fitted, Task
from pipelines.models.mf import Mf, MfModel
from pipelines.trials import tune as command
from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from pipelines.trials.tune import tune
from pipelines.trials.worker import TrialData
from shared.contracts.models import Model
from shared.contracts.strict import read
from shared.contracts.tuning import BEST, TRIALS, TUNE, TUNE_PAGE
from shared.domain.errors import BadData, EyasError, Invalid
from tests.support.html_pages import Page
from tests.support.search_workers import BenchWorker, WidthWorker
from tests.support.taste_table import likes

RANGES = {"params.width": {"from": 2, "to": 16, "log": True}, "params.regularisation": {"from": 1e-3, "to": 1.0, "log": True}}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    train, test, _ = cut(PairFile("likes", likes()), "random", 3)
    train.write_csv(tmp_path / "train.csv")
    test.write_csv(tmp_path / "test.csv")
    return tmp_path


def told(world: Path, **more: Any) -> dict[str, Any]:
    begin = {"train": str(world / "train.csv"), "out": str(world / "out"), "name": "mf", "model": {"family": "mf", "params": {"sweeps": 2}}}
    return begin | {"ranges": RANGES, "trials": 4} | more


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's work in this process."""
    monkeypatch.setattr(command, "Worker", BenchWorker)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Worker", WidthWorker)


def trials(world: Path, out: str = "out") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (world / out / TRIALS).read_text().splitlines()]


@pytest.mark.requirement("N-01")
def test_a_search_leaves_its_trials_the_best_settings_and_a_page(world: Path) -> None:
    answer = tune(told(world, trials=6, test=str(world / "test.csv"), metric="ndcg@10/20"))
    rows = trials(world)
    assert [row["number"] for row in rows] == list(range(6))
    assert rows[0]["params"] == {} and all(set(row["params"]) == set(RANGES) for row in rows[1:])
    done = [row["value"] for row in rows if row["state"] == "done"]
    assert answer.best[0].value == max(done) and answer.done == len(done) == 6
    assert [row.value for row in answer.best] == sorted(done, reverse=True)
    assert rows[0]["metrics"].keys() == {"ndcg@10/20", "ndcg@10", "hr@10"}

    pasted = yaml.safe_load((world / "out" / BEST).read_text())
    best = read(Model, pasted["model"], BEST)
    assert best.family == "mf" and best.params.model_dump()["sweeps"] == 2
    for name, value in answer.best[0].params.items():
        assert best.params.model_dump()[name.removeprefix("params.")] == value

    document = json.loads((world / "out" / TUNE).read_text())
    assert document["best"]["value"] == max(done) and len(document["trials"]) == 6
    assert answer.gain is not None
    assert document["gain"] == {"metric": "ndcg@10/20", "before": answer.gain.before, "after": answer.gain.after}
    page = Page((world / "out" / TUNE_PAGE).read_text())
    assert page.balanced and not page.foreign and "script" not in page.tags and "svg" in page.tags


def test_more_trials_go_on_with_the_same_search_and_no_more_are_no_work(world: Path, quick: None) -> None:
    tune(told(world, trials=3))
    before = (world / "out" / TRIALS).read_bytes()
    tune(told(world, trials=3))
    assert (world / "out" / TRIALS).read_bytes() == before
    tune(told(world, trials=5))
    assert (world / "out" / TRIALS).read_bytes().startswith(before)
    assert len(trials(world)) == 5


def test_a_trial_that_fails_has_its_reason_and_the_search_goes_on(world: Path, quick: None) -> None:
    """Above 8 the process dies, above 4 the model can't be trained."""
    answer = tune(told(world, ranges={"params.width": {"from": 2, "to": 12}}, trials=15))
    rows = trials(world)
    reasons = {row["reason"] for row in rows if row["state"] == "failed"}
    assert reasons == {"the process was killed, probably because memory ran out", "too wide"}
    for row in rows:
        assert (row["state"] == "done") == (row["params"].get("params.width", 0) <= 4)
    assert answer.failed == sum(row["state"] == "failed" for row in rows) and answer.done + answer.failed == 15
    assert answer.best[0].params == {"params.width": 4}
    assert "too wide" in (world / "out" / TUNE_PAGE).read_text()


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (MemoryError(), "not enough memory"),
        (Invalid("model.params: too large"), "model.params: too large"),
        (RuntimeError("no device\nat all"), "RuntimeError: no device at all"),
        (np.nan, "the model: model scores are not finite"),
    ],
)
def test_whatever_goes_wrong_with_a_model_is_its_trials_reason(
    world: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any, said: str
) -> None:
    class Family(Mf):
        def train(self, task: Task) -> Fitted:
            if isinstance(trouble, Exception):
                raise trouble
            fitted = super().train(task)
            assert isinstance(fitted.model, MfModel)
            fitted.model.factors.items[:] = trouble
            return fitted

    monkeypatch.setattr("pipelines.trials.worker.family_of", lambda name, modules=(): Family())
    model = {"family": "mf", "params": {"regularisation": 0.1, "sweeps": 1, "width": 2}}
    data = {"train": str(world / "train.csv"), "models": ("mf",), "out": str(world)}
    tried = TrialData.made({"data": data, "model": model}, world / "scratch").tried({"model": model, "metrics": ["ndcg@10"]})
    assert said in tried["failed"] and "\n" not in tried["failed"]
    assert tried["seconds"] > 0


def test_all_trials_failing_end_the_search_with_the_last_reason(world: Path, quick: None) -> None:
    with pytest.raises(BadData, match="all 5 trials failed; the last reason: "):
        tune(told(world, model={"family": "mf", "params": {"sweeps": 13}}, ranges={"params.width": {"from": 5, "to": 8}}, trials=20))
    assert len(trials(world)) == 5
    assert not (world / "out" / BEST).exists()


def test_equal_choices_are_trained_once(world: Path, quick: None) -> None:
    answer = tune(told(world, ranges={"params.width": {"of": [2, 4]}}, trials=7))
    rows = trials(world)
    trained = [row for row in rows if row["same_as"] is None]
    assert len(trained) == 3, "original settings, and two choices"
    for row in rows:
        if row["same_as"] is not None:
            assert row["value"] == rows[row["same_as"]]["value"]
    assert len(answer.best) == 3


def test_the_time_being_over_ends_it_early_and_later_it_goes_on(world: Path, quick: None) -> None:
    answer = tune(told(world, trials=50, minutes=1e-9))
    assert answer.stopped and len(trials(world)) == 1
    assert not tune(told(world, trials=2, minutes=5)).stopped
    assert len(trials(world)) == 2


def test_the_test_file_is_searched_on_only_by_name(world: Path) -> None:
    tune(told(world, trials=2))
    by_test = told(world, trials=2, out=str(world / "t"), test=str(world / "test.csv"), on_test=True)
    answer = tune(by_test)
    assert answer.gain is None
    assert [row["value"] for row in trials(world, "t")] != [row["value"] for row in trials(world)]
    assert str(world / "test.csv") in " ".join(json.loads((world / "t" / TUNE).read_text())["how"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"metric": "auc"}, "--metric auc: expected a ranking metric"),
    ({"metric": "ndcg@10/0"}, "--metric ndcg@10/0: expected a ranking metric"),
    ({"metric": "hr@0"}, "--metric hr@0: expected a ranking metric"),
    ({"test": "no/such.csv"}, "no/such.csv: file not found"),
    ({"train": "/"}, "/: it is a folder: name a file in it"),
    ({"on_test": True}, "--on-test: no --test to search on"),
    ({"on_test": True, "test": "train.csv", "holdout": "last"}, "--holdout: not possible with --on-test, which holds nothing out"),
    ({"holdout": "last"}, "has no time column: use --holdout random"),
    ({"train": "none.csv"}, "none.csv: file not found"),
    ({"ranges": {"params.widht": {"from": 1, "to": 2}}}, "did you mean 'params.width'?"),
    ({"model": {"family": "mff"}}, "unknown model family 'mff': did you mean 'mf'?"),
    ({"trials": 0}, "trials: expected at least 1, got 0"),
    ({"minutes": 0}, "minutes: expected more than 0, got 0"),
    ({"min_interactions": 10_000}, "no user has 10000 items: choose a smaller --min-interactions"),
]


def test_what_cannot_be_searched_is_refused_in_one_line(world: Path, subtests: pytest.Subtests) -> None:
    for number, (more, said) in enumerate(REFUSED):
        with subtests.test(msg=said, more=more):
            asked = {name: str(world / value) if name in ("train", "test") else value for name, value in more.items()}
            with pytest.raises(EyasError) as refused:
                tune(told(world, **asked, out=str(world / f"refused-{number}")))
            assert said in str(refused.value)
            assert "\n" not in str(refused.value)
            assert not (world / f"refused-{number}" / TRIALS).exists() or not trials(world, f"refused-{number}")


def test_another_search_in_the_same_folder_is_refused(world: Path, quick: None) -> None:
    tune(told(world, trials=1))
    with pytest.raises(Invalid, match="a search with other metric: choose another folder"):
        tune(told(world, trials=1, metric="hr@10"))
    (world / "train.csv").write_text((world / "train.csv").read_text() + "1,2\n")
    with pytest.raises(Invalid, match="a search with other data: choose another folder"):
        tune(told(world, trials=1))
