"""The comparison of plain twins: its interval, its misses, and its results that are not measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import train_cases, twins
from benchmarks.harness import Missed

CASE = train_cases.sized("mlp", 100, 8)


def _line(*plain: float) -> dict[str, Any]:
    return {"seconds": {"eyas": [1.0] * len(plain), "plain": list(plain)}}


def test_the_interval_is_around_the_geometric_mean() -> None:
    low, high = twins.interval([0.5, 2.0, 1.0])
    assert low * high == pytest.approx(1) and low == pytest.approx(0.178, abs=1e-3)


@pytest.mark.parametrize(("plain", "missed"), [((0.9, 0.91, 0.89), True), ((0.9, 1.1, 0.95), False), ((1.2, 1.21, 1.19), False)])
def test_only_an_interval_below_one_is_a_miss(plain: tuple[float, ...], missed: bool) -> None:
    outcomes = list(twins._compared(CASE, "torch", _line(*plain)))
    assert any(isinstance(outcome, Missed) for outcome in outcomes) is missed


def test_a_measured_case_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, runs = tmp_path / "results" / "twins.jsonl", []
    monkeypatch.setattr(twins, "_child", lambda *arguments: runs.append(arguments) or _line(1.0, 2.0))
    first, again = (twins._measured(CASE, "torch", 7, results) for _ in range(2))
    assert first == again and len(runs) == 1 and len(results.read_text().splitlines()) == 1
    twins._measured(CASE, "jax", 7, results)
    assert len(runs) == 2 and json.loads(results.read_text().splitlines()[1])["framework"] == "jax"
