"""Bootstrap intervals over users, and what is said of scores as probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.evaluation import intervals as module
from pipelines.evaluation.calibration import calibrate
from pipelines.evaluation.intervals import difference, intervals
from pipelines.evaluation.per_user import PerUser


def observed(values: list[float] | np.ndarray, owners: list[int] | np.ndarray | None = None) -> PerUser:
    return PerUser(np.arange(len(values)) if owners is None else np.asarray(owners), np.asarray(values, float))


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Hits of users with 1 to 5 cases each, whose tastes differ: of 200 samples 95 per cent, up to four deviations of that share."""
    held = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        taste = random.beta(3, 7, 120)
        owners = np.repeat(np.arange(120), random.integers(1, 6, 120))
        hits = (random.random(len(owners)) < taste[owners]).astype(float)
        low, high = intervals({"hr": observed(hits, owners)}, seed, times=300)["hr"] or (1, 0)
        held += low <= 0.3 <= high
    assert held >= 0.95 * 200 - 4 * (200 * 0.95 * 0.05) ** 0.5


def test_they_are_as_wide_as_the_standard_error_says() -> None:
    values = np.random.default_rng(1).normal(0.5, 0.2, 400)
    low, high = intervals({"x": observed(values)}, 3, times=4000)["x"] or (0, 0)
    error = values.std() / 20
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.08)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=error / 5)


def test_cases_of_one_user_are_no_independent_looks() -> None:
    """Each user's ten cases are alike: ten times as many rows, and nothing more is known."""
    hits = (np.random.default_rng(2).random(60) < 0.4).astype(float)
    single = intervals({"hr": observed(hits)}, 5)["hr"] or (0, 0)
    repeated = intervals({"hr": observed(np.repeat(hits, 10), np.repeat(np.arange(60), 10))}, 5)["hr"] or (0, 0)
    np.testing.assert_allclose(single, repeated)


def test_equal_seeds_give_equal_intervals_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = observed(np.random.default_rng(4).random(50))
    first = intervals({"x": one}, 9)
    assert first == intervals({"x": one}, 9) != intervals({"x": one}, 10)
    monkeypatch.setattr(module, "_CELLS", 170)
    monkeypatch.setattr(module, "_DRAWN", 170)
    np.testing.assert_allclose(intervals({"x": one}, 9)["x"] or (), first["x"] or ())


def test_groups_of_users_say_how_sure_a_mean_is_as_users_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6,000 users with 1 to 5 cases each, in 1,000 groups."""
    random = np.random.default_rng(8)
    owners = np.repeat(np.arange(6_000), random.integers(1, 6, 6_000))
    one = observed((random.random(len(owners)) < random.beta(3, 7, 6_000)[owners]).astype(float), owners)
    single = intervals({"x": one}, 2)["x"] or (0, 0)
    monkeypatch.setattr(module, "MOST", 1_000)
    grouped = intervals({"x": one}, 2)["x"] or (0, 0)
    assert grouped != single and grouped[1] - grouped[0] == pytest.approx(single[1] - single[0], rel=0.2)
    assert sum(grouped) / 2 == pytest.approx(one.mean, abs=(single[1] - single[0]) / 10)


def test_a_difference_user_by_user_is_surer_than_both() -> None:
    random = np.random.default_rng(6)
    hard = random.random(300)
    one, other = observed(hard + 0.05), observed(hard + random.normal(0, 0.01, 300))
    low, high = intervals({"d": difference(one, other)}, 1)["d"] or (0, 0)
    alone = intervals({"x": one}, 1)["x"] or (0, 0)
    assert 0.04 < low < high < 0.06
    assert high - low < (alone[1] - alone[0]) / 5


def test_where_all_say_the_same_there_is_no_interval() -> None:
    assert intervals({"x": observed([0.0, 0.0, 0.0])}, 1) == {"x": None}
    assert intervals({}, 1) == {}


def test_one_user_is_no_sample_and_equal_users_tell_no_spread() -> None:
    single, equal, some = (PerUser(np.array(of), np.array([1.0, 0.0] * 5)) for of in ([3] * 10, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], range(10)))
    bounds = intervals({"one": single, "equal": equal, "some": some}, 1)
    assert bounds["one"] is None and bounds["equal"] is None
    assert bounds["some"] == intervals({"some": some}, 1)["some"] and bounds["some"] is not None


def test_rows_of_one_score_are_calibrated_by_their_share_whatever_order_they_come_in() -> None:
    labels = np.array([1] * 50 + [0] * 50, np.int8)
    found = calibrate(labels, np.full(100, 0.5, np.float32))
    assert found is not None and found.error == pytest.approx(0)
    assert calibrate(labels[::-1], np.full(100, 0.5, np.float32)) == found
    high = calibrate(labels, np.full(100, 0.75, np.float32))
    assert high is not None and high.error == pytest.approx(0.25)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1, width=32)), min_size=1, max_size=60), st.integers(1, 12))
def test_calibration_is_what_its_definition_says(rows: list[tuple[bool, float]], bins: int) -> None:
    labels, scores = np.array([label for label, _ in rows], np.int8), np.array([score for _, score in rows], np.float32)
    found = calibrate(labels, scores, bins)
    assert found is not None
    assert sum(one.rows for one in found.bins) == len(rows)
    assert max(one.rows for one in found.bins) - min(one.rows for one in found.bins) <= 1
    assert sum(one.rows * one.liked for one in found.bins) == pytest.approx(labels.sum())
    assert [one.score for one in found.bins] == sorted(one.score for one in found.bins)
    assert 0 <= found.error <= 1
    losses = [-np.log(max(1e-7, min(1 - 1e-7, float(score) if label else 1 - float(score)))) for label, score in rows]
    assert found.log_loss == pytest.approx(np.mean(losses), rel=1e-6)


def test_true_probabilities_are_calibrated_and_bold_ones_are_not() -> None:
    random = np.random.default_rng(3)
    chance = random.random(50_000).astype(np.float32)
    labels = (random.random(50_000) < chance).astype(np.int8)
    good, bold = calibrate(labels, chance), calibrate(labels, np.clip(chance * 2 - 0.5, 0, 1).astype(np.float32))
    assert good is not None
    assert bold is not None
    assert good.error < 0.01
    assert bold.error > 0.1
    assert good.log_loss < bold.log_loss


def test_what_is_no_probability_is_not_calibrated() -> None:
    assert calibrate(np.array([1, 0], np.int8), np.array([1.2, 0.1], np.float32)) is None
    assert calibrate(np.array([1, 0], np.int8), np.array([0.2, -0.1], np.float32)) is None
