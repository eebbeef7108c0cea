"""Guardrails as people write them: what each metric takes, and what is said to who writes something else."""

from __future__ import annotations

from typing import Any

import pytest

from shared.contracts.guardrails import Guardrails
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.domain.guardrail import Guardrail


def rules(**written: Any) -> dict[str, Guardrail]:
    return {rail.metric: rail for rail in read(Guardrails, written, "spec").rules()}


DEFAULTS = {"errors", "latency_p50", "latency_p99", "fallback", "empty"}


def test_errors_latency_fallback_and_empty_answers_are_watched_unless_somebody_says_otherwise() -> None:
    assert rules() == {
        "errors": Guardrail("errors", 0.01),
        "latency_p50": Guardrail("latency_p50", 2.0, relative=True),
        "latency_p99": Guardrail("latency_p99", 2.0, relative=True),
        "fallback": Guardrail("fallback", 1.5, relative=True),
        "empty": Guardrail("empty", 1.5, relative=True),
    }
    assert set(rules(coverage="> 0.5x")) == {*DEFAULTS, "coverage"}


def test_one_can_be_taken_away(subtests: pytest.Subtests) -> None:
    for off in ("off", None, False):
        with subtests.test(off=off):
            assert set(rules(errors=off, empty=off)) == DEFAULTS - {"errors", "empty"}


BOUNDS = [
    ("errors", "< 0.1%", 0.001, False),
    ("errors", "< 0.02", 0.02, False),
    ("errors", "<3x", 3, True),
    ("fallback", "< 1.2x", 1.2, True),
    ("fallback", "< 40%", 0.4, False),
    ("empty", "< 2%", 0.02, False),
    ("latency_p50", "< 1.5x", 1.5, True),
    ("latency_p99", "< 1.2x", 1.2, True),
    ("latency_p99", "< 50ms", 0.05, False),
    ("latency_p99", "< 2s", 2, False),
    ("coverage", "> 0.5x", 0.5, True),
    ("score_shift", "< 0.5", 0.5, False),
    ("conversion", "> -5%", -0.05, True),
]


def test_each_is_read_as_it_is_meant(subtests: pytest.Subtests) -> None:
    for metric, written, bound, relative in BOUNDS:
        with subtests.test(metric=metric, written=written):
            assert rules(**{metric: written})[metric] == Guardrail(metric, pytest.approx(bound), relative)


INVALID_BOUNDS = [
    ("errors", "> 1%", "'< 1%' (between 0% and 100%)"),
    ("errors", "< 0%", "between 0% and 100%"),
    ("errors", "< 100%", "between 0% and 100%"),
    ("errors", "< 1x", "more than 1x"),
    ("errors", "<= 1%", "'< 1%'"),
    ("errors", 0.01, "'< 1%'"),
    ("errors", True, "'< 1%'"),
    ("errors", "few", "or off"),
    ("latency_p99", "< 0.9x", "more than 1x"),
    ("latency_p99", "< 20%", "'< 2x' (more than 1x) or '< 50ms'"),
    ("latency_p99", "< 5", "'< 50ms'"),
    ("latency_p99", "< 0ms", "'< 50ms'"),
    ("coverage", "< 0.5x", "'> 0.5x' (between 0x and 1x)"),
    ("coverage", "> 1x", "between 0x and 1x"),
    ("score_shift", "< -1", "more than 0"),
    ("conversion", "> 5%", "'> -5%' (between -100% and 0%)"),
    ("conversion", "> -200%", "between -100% and 0%"),
    ("latency_p99", "< 1e3x", "'< 2x'"),
]


def test_a_bound_that_makes_no_sense_is_refused_in_one_line(subtests: pytest.Subtests) -> None:
    for metric, written, wanted in INVALID_BOUNDS:
        with subtests.test(metric=metric, written=written):
            with pytest.raises(Invalid) as caught:
                rules(**{metric: written})
            said = str(caught.value)
            assert said.startswith(f"spec: {metric}: expected a bound such as")
            assert wanted in said
            assert repr(written) in said
            assert "\n" not in said


def test_an_unknown_one_names_the_nearest() -> None:
    with pytest.raises(Invalid, match="unknown field 'latency_p95': did you mean 'latency_p9"):
        rules(latency_p95="< 2x")


def test_what_is_written_is_read_back_as_the_same() -> None:
    one = read(Guardrails, {"errors": "off", "latency_p99": " < 1.2x", "coverage": "> 0.5x"}, "spec")
    assert read(Guardrails, one.model_dump(mode="json"), "spec") == one
