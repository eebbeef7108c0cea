"""The spec's `rollout`: short where it can be, and each fault in one line that says where and what to write."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.plans import rollout_plan
from shared.contracts.rollouts import Rollout
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.domain.guardrail import Guardrail
from shared.domain.rollout_plan import RolloutPlan, ShadowPlan

HOUR = timedelta(hours=1)


def plan(**written: Any) -> RolloutPlan:
    rollout = read(Rollout, written, "spec")
    assert read(Rollout, rollout.model_dump(mode="json", by_alias=True), "spec") == rollout, "read back as it was"
    return rollout_plan(RecommenderSpec.model_construct(rollout=rollout))


def test_nothing_has_to_be_said() -> None:
    made = plan()
    assert [step.weight for step in made.steps] == [0.05, 0.25, 0.5]
    assert (made.shadow, made.goal, made.every, made.failures, made.inconclusive) == (None, "hit_rate", timedelta(seconds=30), 1, None)
    assert made.guardrails == (
        Guardrail("errors", 0.01),
        Guardrail("latency_p50", 2.0, relative=True),
        Guardrail("latency_p99", 2.0, relative=True),
        Guardrail("fallback", 1.5, relative=True),
        Guardrail("empty", 1.5, relative=True),
    )


def test_a_step_is_a_share_or_says_more() -> None:
    steps = ["1%", {"weight": "10%", "min": "10m", "max": "2d", "min_users": 500, "min_answers": 1000}, 0.5]
    made = plan(steps=steps, analysis={"min_users": 60, "min_answers": 70, "deadline": "3h"})
    assert [(one.weight, one.min, one.max, one.min_users, one.min_answers) for one in made.steps] == [
        (0.01, timedelta(0), 3 * HOUR, 60, 70),
        (0.1, HOUR / 6, 48 * HOUR, 500, 1000),
        (0.5, timedelta(0), 3 * HOUR, 60, 70),
    ]


def test_a_shadow_is_a_time_or_says_more(subtests: pytest.Subtests) -> None:
    for written in ("5m", {"for": "5m"}, {"for": "300s", "min_answers": 100}):
        with subtests.test(written=written):
            assert plan(shadow=written).shadow == ShadowPlan(timedelta(minutes=5), 100)


INVALID_ROLLOUTS = [
    ({"steps": ["5%", "much"]}, "steps.1: expected a share such as 25%, or {weight: 25%, min: 10m, min_users: 500}, got 'much'"),
    ({"steps": ["5%", "100%"]}, "steps.1: expected a share between 0% and 100%, got '100%'"),
    ({"steps": ["5%", {"weight": "10%", "mim": "1m"}]}, "steps.1: unknown field 'mim': did you mean 'min'?"),
    ({"steps": ["5%", {"min": "1m"}]}, "steps.1.weight: field required"),
    ({"steps": ["5%", {"weight": "9%", "min": "2h", "max": "1h"}]}, "steps.1: min 2h is greater than max 1h"),
    ({"steps": [{"weight": "9%", "min": "8d"}]}, "steps: min 8d is above analysis.deadline 7d; set a max for the step"),
    ({"steps": [{"weight": "9%"}, "5%"]}, "steps must increase"),
    ({"steps": ["5%", {"weight": "9%", "min_users": 3}]}, "steps.1.min_users"),
    ({"shadow": "soon"}, "shadow: expected a duration such as 30s"),
    ({"shadow": {"min_answers": 5}}, "shadow.for: field required"),
    ({"keep_warm": "0s"}, "keep_warm: expected a duration above 0"),
    ({"progress": 5}, "progress: expected a duration"),
    ({"analysis": {"goal": "profit"}}, "analysis.goal: expected 'hit_rate' or 'conversion'"),
    ({"analysis": {"failures": 0}}, "analysis.failures: expected at least 1"),
    ({"analysis": {"guardrails": {"errors": "> 1%"}}}, "analysis.guardrails.errors: expected a bound such as '< 1%'"),
    ({"analysis": {"guardrails": ["errors"]}}, "analysis.guardrails: "),
]


def test_a_fault_is_named_in_one_line(subtests: pytest.Subtests) -> None:
    for written, said in INVALID_ROLLOUTS:
        with subtests.test(written=written):
            with pytest.raises(Invalid) as caught:
                read(Rollout, written, "spec")
            assert said in str(caught.value)
            assert "\n" not in str(caught.value)


def test_the_rollout_of_the_how_to_is_a_rollout() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/rollouts.md").read_text(encoding="utf-8")
    written = text.split("```yaml part-of-a-spec.yaml\n")[1].split("```")[0]
    rest = "name: m\ndata: {interactions: {uri: a.csv}, items: {uri: b.csv, key: i}}\n"
    rest += "schema: {user: u, item: i, time: t, label: {column: l, positive: '>= 4'}}\n"
    made = rollout_plan(parse_spec(rest + written))
    assert [step.weight for step in made.steps] == [0.01, 0.1, 0.5]
    assert made.guardrails[-1] == Guardrail("coverage", 0.5, relative=True)
