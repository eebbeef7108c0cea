"""The benchmark of attacks: its bodies, and its promise."""

from __future__ import annotations

import pytest

from benchmarks.attack_clients import YAML_BYTES, nested_lists
from benchmarks.attacks import QUIET, RATIO, missed_promises
from benchmarks.harness import Row
from shared.contracts.yaml12 import load


@pytest.mark.parametrize(
    ("metric", "values", "missed"),
    [
        (f"p50, {RATIO}", [1.2, 1.9, 9.0], False),
        (f"p50, {RATIO}", [1.2, 2.1, 2.2], True),
        (f"p99, {RATIO}", [9.0], False),
        ("p50", [9.0], False),
    ],
)
def test_the_promise_is_about_the_median_of_the_p50(metric: str, values: list[float], missed: bool) -> None:
    assert bool(missed_promises([Row("case", "an attack", metric, "", values), Row("case", QUIET, "p50", "ms", [1.0])])) is missed


def test_the_hostile_yaml_is_as_large_as_a_spec_may_be() -> None:
    assert 0.95 * YAML_BYTES < len(nested_lists()) <= YAML_BYTES
    assert load("a: [" + "[" * 90 + "]" * 90 + ",]", "a part of it")
