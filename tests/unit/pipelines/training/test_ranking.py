"""Held-out likes ranked against items that their users never met: which they are, and that ranks are what they should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.inputs.tables import Codes
from pipelines.training import ranking as ranking_module
from pipelines.training.ranking import NEGATIVES, Ranking, rank_held
from pipelines.training.trainer import TrainingRequest, material, run
from shared.contracts.training import SAMPLED, LookMetric
from shared.domain.errors import Invalid
from tests.support.training_tasks import ITEMS, USERS, Factors, task, write_rows


def _score(columns: Codes) -> np.ndarray:
    return np.where(columns["user"] % 4 == columns["item"] % 4, 0.9, 0.2).astype(np.float32)


@contextmanager
def _ranking(
    path: Path, score: object = _score, history: Path | None = None, ranked: frozenset[LookMetric] = SAMPLED
) -> Iterator[tuple[Ranking, pl.DataFrame, pl.DataFrame]]:
    """With the rows that are held out, and those that are trained on."""
    given = task(path, validation=0.2)
    with material(given, TrainingRequest(2)) as there:
        assert there.validation is not None
        folder = there.validation.path.parent
        ranking = rank_held(there.validation, there.batches.path, history, np.arange(ITEMS), folder, score, ranked)  # type: ignore[arg-type]
        yield ranking, pl.read_parquet(there.validation.path), pl.read_parquet(there.batches.path)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = write_rows(tmp_path / "train.parquet")
    frame = pl.read_parquet(path)
    frame.filter(pl.col("item") % 3 == pl.col("user") % 3).write_parquet(path)  # so that everybody has enough that it never met
    return path


@pytest.mark.requirement("N-05")
def test_a_case_is_one_held_out_like_of_a_user_among_items_that_it_never_met(rows: Path) -> None:
    with _ranking(rows) as (ranking, held, rest):
        (batch,) = list(ranking.batches.epoch(0))
        users, items = (batch.columns[name] - 2 for name in ("user", "item"))
        likes = held.filter(pl.col("label") == 1).select("user", "item")
        assert len(ranking.starts) == likes["user"].n_unique() <= USERS
        assert np.flatnonzero(batch.labels).tolist() == ranking.starts.tolist()
        met = set(pl.concat([held, rest]).select("user", "item").iter_rows())
        for first, last in zip(ranking.starts, np.append(ranking.starts[1:], len(users)), strict=True):
            assert (users[first], items[first]) in set(likes.iter_rows()) and len(set(users[first:last])) == 1
            others = items[first + 1 : last].tolist()
            assert len(others) == len(set(others)) == NEGATIVES
            assert not {(users[first], item) for item in others} & met
    with _ranking(rows) as (again, _, _):
        assert next(iter(again.batches.epoch(0))).columns["item"].tolist() == batch.columns["item"].tolist(), "by the seed alone"


def test_what_was_met_before_a_warm_run_is_no_stranger_and_what_is_trained_on_is_no_case(rows: Path, tmp_path: Path) -> None:
    before = pl.DataFrame({"user": np.repeat(np.arange(USERS), 20), "item": np.tile(np.arange(20), USERS), "label": 0, "before": 0})
    before.write_parquet(tmp_path / "history.parquet")
    twice = pl.read_parquet(rows)
    twice = pl.concat([twice, twice.filter(pl.col("user") < 25).with_columns(pl.col("time") + 0.5)])
    twice.write_parquet(rows, row_group_size=1000)
    with _ranking(rows, history=tmp_path / "history.parquet") as (ranking, _, rest):
        (batch,) = list(ranking.batches.epoch(0))
        users, items = (batch.columns[name] - 2 for name in ("user", "item"))
        strangers = np.delete(items, ranking.starts)
        assert strangers.min() >= 20
        cases = set(zip(users[ranking.starts].tolist(), items[ranking.starts].tolist(), strict=True))
        assert not cases & set(rest.select("user", "item").iter_rows())


@pytest.mark.requirement("N-08")
def test_ranks_are_those_of_a_count_by_hand_and_equal_scores_share_their_places(rows: Path) -> None:
    random = np.random.default_rng(1)
    table = np.round(random.random((USERS + 2, ITEMS + 2)), 1).astype(np.float32)  # many are equal

    def score(columns: Codes) -> np.ndarray:
        return table[columns["user"], columns["item"]]

    with _ranking(rows, score) as (ranking, _, _):
        found = ranking()
        (batch,) = list(ranking.batches.epoch(0))
        scores, hits, gains = score(batch.columns), [], []
        for first, last in zip(ranking.starts, np.append(ranking.starts[1:], len(scores)), strict=True):
            others = scores[first + 1 : last]
            rank = 1 + (others > scores[first]).sum() + (others == scores[first]).sum() / 2
            hits.append(rank <= 10)
            gains.append(1 / np.log2(rank + 1) if rank <= 10 else 0.0)
        assert found == {"hr@10/99": pytest.approx(np.mean(hits)), "ndcg@10/99": pytest.approx(np.mean(gains))}
    with _ranking(rows, lambda columns: np.zeros(len(columns["user"]), np.float32)) as (blank, _, _):
        assert blank() == {"hr@10/99": 0.0, "ndcg@10/99": 0.0}, "who tells nothing apart finds nothing"


@pytest.mark.requirement("N-05")
def test_a_model_that_learns_ranks_better_and_the_best_epoch_is_published(rows: Path) -> None:
    given = task(rows, validation=0.2, epochs=15, early_stop={"metric": "ndcg@10/99", "patience": 15})
    course = run(given, TrainingRequest(2), lambda _: Factors(rate=5.0))
    values = [one.looked["ndcg@10/99"] for one in course.report.epochs]
    assert max(values) > 1.5 * values[0] and course.report.best.looked["ndcg@10/99"] == max(values)
    with material(given, TrainingRequest(2)) as there:
        assert there.validation is not None
        again = rank_held(there.validation, there.batches.path, None, np.arange(ITEMS), there.validation.path.parent, course.step.score)
        assert again()["ndcg@10/99"] == max(values), "the step has the best epoch's weights"


@pytest.mark.requirement("N-05")
def test_epochs_are_compared_by_ranks_among_all_items_that_a_user_never_met(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = task(
        rows, epochs=15, validation=0.2, early_stop={"metric": "ndcg@10", "patience": 15}, target={"metric": "hr@10", "value": 0.1}
    )
    course = run(given, TrainingRequest(2), lambda _: Factors(rate=5.0))
    values = [one.looked["ndcg@10"] for one in course.report.epochs]
    assert max(values) > 1.5 * values[0] and course.report.best.looked["ndcg@10"] == max(values)
    assert "hr@10" in course.report.best.looked and "hr@10/99" not in course.report.best.looked
    with _ranking(rows, ranked=frozenset({"ndcg@10"})) as (ranking, held, rest):
        (batch,) = list(ranking.batches.epoch(0))
        users, items = (batch.columns[name] - 2 for name in ("user", "item"))
        met = pl.concat([held, rest]).group_by("user").agg("item")
        met_by_user = {user: set(those) for user, those in met.iter_rows()}
        for first, last in zip(ranking.starts, np.append(ranking.starts[1:], len(users)), strict=True):
            assert set(items[first + 1 : last].tolist()) == set(range(ITEMS)) - met_by_user[int(users[first])]
    monkeypatch.setattr(ranking_module, "PAIRS", 99 * ITEMS)
    refused = pytest.raises(Invalid, match=r"ndcg@10 ranks .* allows fewer than 100 users: set ndcg@10/99")
    with refused, _ranking(rows, ranked=frozenset({"ndcg@10"})):
        pass
    monkeypatch.setattr(ranking_module, "FEWEST", 7)
    monkeypatch.setattr(ranking_module, "PAIRS", 7 * ITEMS)
    with _ranking(rows, ranked=frozenset({"ndcg@10"})) as (ranking, _, _):
        assert len(ranking.starts) == 7


def test_where_nothing_can_be_ranked_that_is_said_before_training(rows: Path) -> None:
    pl.read_parquet(rows).with_columns(label=pl.lit(0, pl.Int8)).write_parquet(rows)
    with (
        pytest.raises(Invalid, match=r"early_stop\.metric: nothing can be ranked, because .*; raise model.train.validation"),
        _ranking(rows),
    ):
        pass
