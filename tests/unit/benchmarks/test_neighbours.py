"""The benchmark of neighbours: its sleeping version, its split of users, and its promise."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime import InferenceSession

from benchmarks.harness import Row
from benchmarks.load import Outcome
from benchmarks.neighbours import ALONE, BESIDE_SLEEPING, FAILED, FAST_CANARY, missed_promises
from benchmarks.neighbours_world import sleeping, split_users
from shared.domain.route import Route


def test_a_sleeping_version_scores_as_the_fast_one_and_says_how_long_it_sleeps() -> None:
    session = InferenceSession(sleeping(0.5), providers=["CPUExecutionProvider"])
    rows = np.arange(3)
    assert session.run(["score"], {"user": rows, "item": rows})[0].tolist() == [0.0, 2.0, 4.0]
    assert session.get_modelmeta().custom_metadata_map == {"sleep": "0.5"}


def test_users_are_split_as_the_route_splits_them() -> None:
    stable, candidate = split_users(Route(1, candidate=2, weight=0.1, salt="s"), 2000)
    assert sorted(stable + candidate) == list(range(2000))
    assert 150 < len(candidate) < 250


@pytest.mark.parametrize(
    ("contender", "metric", "values", "missed"),
    [
        (BESIDE_SLEEPING, "p50, ratio to: alone", [1.2, 1.4, 9.0], False),
        (BESIDE_SLEEPING, "p50, ratio to: alone", [1.2, 1.6, 1.7], True),
        (BESIDE_SLEEPING, "p95, ratio to: alone", [2.0], True),
        (BESIDE_SLEEPING, "p99, ratio to: alone", [9.0], False),
        (BESIDE_SLEEPING, "p50", [9.0], False),
        (BESIDE_SLEEPING, FAILED, [0, 0, 1], True),
        (FAST_CANARY, "p50, ratio to: alone", [9.0], False),
        (ALONE, FAILED, [1], False),
    ],
)
def test_the_promise_is_about_sleeping_versions_and_the_median_of_rounds(
    contender: str, metric: str, values: list[float], missed: bool
) -> None:
    assert bool(missed_promises([Row("case", contender, metric, "", values)])) is missed


def test_requests_without_an_answer_of_the_version_failed() -> None:
    assert Outcome([1.0], {"200": 5, "200 fallback": 2, "503": 1}).failed == 3
    assert Outcome([], {}).percentile(50) == float("inf")
