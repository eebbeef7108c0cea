"""Ranks, and what is made of them, against slow plain definitions."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation import judge as module
from pipelines.evaluation import ranking
from pipelines.evaluation.cases import ABSENT, Cases, Negatives, UserCases
from pipelines.evaluation.coverage import coverage, novelty
from pipelines.evaluation.judge import ranks_of_retrieved
from pipelines.evaluation.metrics import rank_metric
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.ranking import CaseRanks, by_pairs, rank
from pipelines.evaluation.slices import by_expression, by_values, standard
from shared.domain.errors import BadData

NAMES = ("hr@1", "hr@3", "ndcg@3", "mrr", "mrr@2", "hr@2/4", "ndcg@3/4", "auc/4", "recall@3", "map@3")


@dataclass
class World:
    scores: Any
    """[users, items]; few different ones, so that ties are many."""
    cases: Cases
    negatives: dict[int, list[list[Any]]]
    settings: dict[str, int]
    """How many scores are in hand, and when they are counted or sorted."""

    def ranked(self, users: int = 5) -> CaseRanks:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.settings.items():
                patch.setattr(ranking, name, value)
            asked = {count: given_ones(drawn) for count, drawn in self.negatives.items()}
            return rank(lambda users: self.scores[users], self.cases.first(users), asked, shown=3)


def given_ones(lists: list[list[Any]]) -> Negatives:
    """By user and case."""

    def draw(first: int, end: int) -> Any:
        rows = [case for user in lists[first:end] for case in user]
        return np.array([np.pad(row, (0, 4 - len(row)), constant_values=ABSENT) for row in rows], np.int32)

    return draw


@st.composite
def worlds(draw: Any) -> World:
    users, items = draw(st.integers(1, 5)), draw(st.integers(2, 9))
    scores = np.array(
        draw(st.lists(st.lists(st.integers(0, 4), min_size=items, max_size=items), min_size=users, max_size=users)), np.float32
    )
    cases, negatives = [], []
    for user in range(users):
        known = draw(st.booleans()) or user == 0
        some = draw(st.permutations(range(items)))
        targets = sorted(some[: draw(st.integers(1, min(3, items)))])
        liked = sorted(draw(st.sets(st.sampled_from(range(items)))) - (set() if draw(st.booleans()) else set(targets)))
        lost = draw(st.booleans())
        rows = np.array([*([-1] if lost else []), *targets], np.int64)
        cases.append(UserCases(user if known else -1, rows, np.array(liked, np.int64) if known else rows[:0], rows[:0], known))
        negatives.append([np.array(draw(st.lists(st.integers(-1, items - 1), max_size=4)), np.int64) for _ in rows])
    settings = {"CELLS": draw(st.sampled_from((1, 60, 1 << 22))), "_SORT_FROM": draw(st.sampled_from((1, 256)))}
    return World(scores, Cases(tuple(cases), sum(len(one.targets) for one in cases), items), {4: negatives}, settings)


def behind(score: float, others: Any) -> float:
    found = np.asarray(others)
    return 1 + int((found > score).sum()) + int((found == score).sum()) / 2


@given(worlds())
def test_ranks_are_what_counting_one_by_one_says(world: World) -> None:
    found, at = world.ranked(), 0
    for number, one in enumerate(world.cases.users):
        targets = [int(row) for row in one.targets]
        hidden = set(one.liked.tolist()) | {row for row in targets if row >= 0}
        for place, row in enumerate(targets):
            drawn = [int(other) for other in world.negatives[4][number][place]]
            left = [other for other in range(world.cases.catalogue) if other not in hidden]
            assert found.among[at] == len(left) + 1
            if not one.scorable or row < 0:
                assert found.lost[at]
                assert found.full[at] == len(left) + 1
                assert found.sampled[4][at] == len(drawn) + 1
            else:
                scores = world.scores[one.user]
                others = [scores[other] for other in left]
                siblings = [scores[other] for other in targets if other >= 0 and other != row]
                assert found.full[at] == behind(scores[row], others)
                assert found.places[at] == behind(scores[row], others + siblings)
                assert found.sampled[4][at] == behind(scores[row], [scores[other] for other in drawn if other >= 0])
            at += 1
    assert at == len(found) == world.cases.count


@given(worlds())
def test_metrics_are_what_their_definitions_say(world: World) -> None:
    found = world.ranked()
    seen = {name: one.mean for name, one in observe(found, NAMES).items()}
    full, sampled, count = found.full.tolist(), found.sampled[4].tolist(), len(found)
    assert seen["hr@3"] == pytest.approx(sum(one <= 3 for one in full) / count)
    assert seen["ndcg@3"] == pytest.approx(sum(1 / log2(one + 1) for one in full if one <= 3) / count)
    assert seen["mrr"] == pytest.approx(sum(1 / one for one in full) / count)
    assert seen["mrr@2"] == pytest.approx(sum(1 / one for one in full if one <= 2) / count)
    assert seen["hr@2/4"] == pytest.approx(sum(one <= 2 for one in sampled) / count)
    shares = [(there + 1 - one) / there if there else 0.5 for one, there in zip(sampled, found.against[4].tolist(), strict=True)]
    assert seen["auc/4"] == pytest.approx(sum(shares) / count)
    recalls, precisions = [], []
    for user in range(len(world.cases.users)):
        places = sorted(found.places[found.owners == user].tolist())
        recalls.append(sum(place <= 3 for place in places) / len(places))
        hits = sum((number + 1) / place for number, place in enumerate(places) if place <= 3)
        precisions.append(hits / min(3, len(places)))
    assert seen["recall@3"] == pytest.approx(sum(recalls) / len(recalls))
    assert seen["map@3"] == pytest.approx(sum(precisions) / len(precisions))


@given(worlds())
def test_what_is_shown_is_the_best_of_what_the_user_does_not_have(world: World) -> None:
    found = world.ranked()
    for shown, one in zip(found.shown, world.cases.users, strict=True):
        rows = [row for row in shown.tolist() if row >= 0]
        targets = {row for row in one.targets.tolist() if row >= 0}
        left = [row for row in range(world.cases.catalogue) if row not in set(one.liked.tolist()) - targets] if one.scorable else []
        assert rows == sorted(left, key=lambda row: (-world.scores[one.user][row], row))[:3]


@given(worlds(), st.integers(1, 5))
def test_the_first_users_are_ranked_alike_whoever_comes_after(world: World, users: int) -> None:
    whole, fewer = world.ranked().first(users), world.ranked(users)
    assert whole.users == fewer.users == min(users, len(world.cases.users))
    for name in ("owners", "full", "places", "among", "lost", "shown"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(fewer, name))
    for name in ("sampled", "against"):
        np.testing.assert_array_equal(getattr(whole, name)[4], getattr(fewer, name)[4])


@pytest.mark.parametrize("size", [3_000, 40_000])
def test_large_catalogues_with_many_ties_are_ranked_as_by_counting(size: int) -> None:
    """Few and many targets, few and many known likes, of scores of few values and of many."""
    random = np.random.default_rng(size)
    for values in (3, 50, 10**6):
        scores = random.integers(0, values, (4, size)).astype(np.float32)
        some = [random.permutation(size)[:2_500] for _ in range(4)]
        sizes = ((1, 0), (5, 100), (200, 40), (9, 2_000))
        users = [
            UserCases(user, rows[:many], rows[2_500 - known :], rows)
            for user, (rows, (many, known)) in enumerate(zip(some, sizes, strict=True))
        ]
        found = rank(lambda users, scores=scores: scores[users], Cases(tuple(users), 0, size), {})
        for user, one in enumerate(users):
            mine = found.owners == user
            others = np.delete(scores[user], np.union1d(one.liked, one.targets))
            own = scores[user][one.targets]
            assert found.full[mine].tolist() == [behind(score, others) for score in own]
            assert found.places[mine].tolist() == [behind(score, np.append(others, np.delete(own, at))) for at, score in enumerate(own)]
            left = np.setdiff1d(np.arange(size), np.setdiff1d(one.liked, one.targets))
            assert found.shown[user].tolist() == left[np.argsort(-scores[user][left], kind="stable")[:10]].tolist()


def ranked(full: list[float], owners: list[int] | None = None, shown: Any = ()) -> CaseRanks:
    ranks = np.array(full)
    nobody = np.zeros(len(full), bool)
    return CaseRanks(np.array(owners or range(len(full))), ranks, np.full(len(full), 9), ranks, {}, {}, np.array(shown, np.int32), nobody)


def test_average_precision_by_hand() -> None:
    """Three targets of one user at 1, 3 and 20; one of another at 2."""
    found = observe(ranked([3.0, 1.0, 20.0, 2.0], [0, 0, 0, 1]), ("map@10", "recall@10"))
    np.testing.assert_allclose(found["map@10"].values, [(1 / 1 + 2 / 3) / 3, 1 / 2])
    np.testing.assert_allclose(found["recall@10"].values, [2 / 3, 1])


def test_a_metric_of_chosen_cases_looks_at_no_other() -> None:
    found = observe(ranked([1.0, 50.0, 1.0]), ("hr@10",), np.array([True, True, False]))["hr@10"]
    assert (found.owners.tolist(), found.values.tolist()) == ([0, 1], [1.0, 0.0])


def test_blocks_of_users_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    scores = random.normal(size=(30, 20)).astype(np.float32)
    rows = [UserCases(user, random.choice(20, 2, replace=False), random.choice(20, 5), np.empty(0, np.int64)) for user in range(30)]
    cases = Cases(tuple(rows), 60, 20)
    whole = rank(lambda users: scores[users], cases, {})
    monkeypatch.setattr(ranking, "CELLS", 1)
    monkeypatch.setattr(ranking, "CHUNK", 50)
    pairs = rank(by_pairs(lambda users, items: scores[users, items], 20), cases, {})
    for name in ("full", "places", "shown", "among"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pairs, name))


def test_pairs_are_asked_for_so_many_at_a_time_whatever_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, asked = np.random.default_rng(1).random((7, 30)), []

    def scorer(users: Any, rows: Any) -> Any:
        asked.append(len(users))
        return scores[users, rows]

    for most in (8, 30, 64, 1_000):
        monkeypatch.setattr(ranking, "CHUNK", most)
        asked.clear()
        np.testing.assert_array_equal(by_pairs(scorer, 30)(np.array([6, 0, 3])), scores[[6, 0, 3]])
        assert max(asked) <= most and sum(asked) == 90


def test_a_score_that_is_no_number_is_refused() -> None:
    cases = Cases((UserCases(0, np.array([1]), np.array([0]), np.array([0])),), 1, 3)
    for bad in (np.nan, np.inf):
        with pytest.raises(BadData, match="model scores are not finite: 1 of 3 are NaN or infinite"):
            rank(lambda users, bad=bad: np.array([[1.0, bad, 0.0]]), cases, {})


@given(worlds(), st.data())
def test_among_candidates_ranks_are_as_if_nothing_else_were_in_the_catalogue(world: World, data: st.DataObject) -> None:
    users = tuple(user for user in world.cases.users if user.scorable)
    cases, items = Cases(users, 0, world.cases.catalogue), range(world.cases.catalogue)
    retrieved = [np.array(sorted(data.draw(st.sets(st.sampled_from(items)))), np.int64) for _ in users]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", data.draw(st.sampled_from((1, 7, 100))))
        found = ranks_of_retrieved(lambda users, rows: world.scores[users, rows], lambda users, count: retrieved, 3, cases).tolist()
    for user, rows in zip(users, retrieved, strict=True):
        hidden = set(user.liked.tolist()) | set(user.targets.tolist())
        for target in user.targets.tolist():
            others = [world.scores[user.user][row] for row in rows.tolist() if row not in hidden]
            assert found.pop(0) == (behind(world.scores[user.user][target], others) if target in rows else np.inf)
    assert found == []


def test_what_is_not_retrieved_cannot_be_hit() -> None:
    cases = Cases((UserCases(0, np.array([1]), np.array([0]), np.array([0])),), 1, 30)

    def hits(rows: list[int]) -> float:
        ranks = ranks_of_retrieved(lambda users, items: -items.astype(float), lambda users, _: [np.array(rows)], 3, cases)
        return rank_metric("hr@1").of(ranks) + rank_metric("mrr").of(ranks)

    assert (hits([1, 2, 3]), hits([0, 1, 2]), hits([2, 3, 4])) == (2, 2, 0)


def test_coverage_and_novelty_by_hand() -> None:
    shown = np.array([[0, 1], [0, 2], [0, -1]], np.int32)
    assert coverage(shown, 6) == 0.5
    likes = np.array([5, 1, 0, 0, 2, 0])  # with one more for each of 6 items: 14 in all
    wanted = (3 * -log2(6 / 14) - log2(2 / 14) - log2(1 / 14)) / 5
    assert novelty(shown, likes, 6) == pytest.approx(wanted)
    assert novelty(np.full((2, 3), -1, np.int32), likes, 6) is None


def test_what_is_no_ranking_metric_is_refused(subtests: pytest.Subtests) -> None:
    for name in ("hr@0x", "hr", "ndcg", "mrr@", "recall@3", "hr@10/"):
        with subtests.test(name=name), pytest.raises(ValueError, match="is not a ranking metric"):
            rank_metric(name)


def test_slices_are_fifths_and_whoever_is_level() -> None:
    owners, of_users = np.array([0, 1, 2, 3, 4, 4]), np.array([1, 2, 2, 3, 9])
    catalogue = np.array([0, 1, 1, 1, 2, 2, 3, 4, 5, 9])
    found = {one.name: one for one in standard(owners, of_users, catalogue[[0, 1, 4, 8, 9, 6]], catalogue)}
    assert found["cold_users"].chosen.tolist() == [True, False, False, False, False, False]
    assert found["heavy_users"].chosen.tolist() == [False] * 4 + [True, True]
    assert found["cold_items"].rule == "items with at most 1 training positives"
    assert found["cold_items"].chosen.tolist() == [True, True, False, False, False, False]
    assert found["head_items"].chosen.tolist() == [False, False, False, True, True, False]
    assert (found["head_items"].chosen ^ found["tail_items"].chosen).all()


def test_an_item_that_nobody_knows_is_cold() -> None:
    found = {one.name: one for one in standard(np.array([0]), np.array([3]), np.array([-1]), np.array([1, 2, 3]))}
    assert found["cold_items"].chosen.all()
    assert found["tail_items"].chosen.all()


def test_a_slice_by_an_expression_holds_the_cases_that_meet_every_comparison() -> None:
    of_users, of_items = np.array([5, 6, 0, 5]), np.array([3, 3, -1, 9])
    assert by_expression("user_history<=5", of_users, of_items).chosen.tolist() == [True, False, True, True]
    assert by_expression("user_history<=5 and item_history<9", of_users, of_items).chosen.tolist() == [True, False, True, False]
    assert by_expression("item_history==0", of_users, of_items).chosen.tolist() == [False, False, True, False]


def test_slices_by_a_column_take_the_most_frequent_values_of_several() -> None:
    table = pl.Series([["War"], ["Drama", "War"], [], ["Drama"], ["Comedy"], ["Horror", "Western"], None])
    found = by_values("genre", table, np.array([1, 3, 2, 4, -1, 6]), most=2)
    assert [one.name for one in found] == ["genre=Drama", "genre=Comedy"]
    assert found[0].chosen.tolist() == [True, True, False, False, False, False]
