"""Warm or full: the rule, held against itself over random pasts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.warm_or_full import FullRunLimits, Link, TrainingHistory, choose, forgotten, grown, warm_runs

FULL = Link("full", {"user": 100, "item": 50})
RULE = FullRunLimits()

losses = st.none() | st.floats(-0.5, 0.5)
codes = st.fixed_dictionaries({"user": st.integers(1, 1000), "item": st.integers(1, 1000)})
warm = st.builds(Link, st.just("warm"), codes, losses)
lines = st.builds(lambda ahead, last: (*ahead, last), st.lists(warm, max_size=12), st.builds(Link, st.just("full"), codes))
limits = st.builds(
    FullRunLimits,
    st.none() | st.floats(0.01, 2),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.01, 0.9),
    st.none() | st.floats(0.01, 2),
)
drifts = st.none() | st.tuples(st.just("genres"), st.floats(0, 3))


def line(*ahead: Link) -> TrainingHistory:
    return TrainingHistory((*ahead, FULL))


def went(share: float | None = None, **more: int) -> Link:
    return Link("warm", {**FULL.codes, **more}, share)


REASONS: list[tuple[TrainingHistory, str, str]] = [
    (TrainingHistory(), "full", "no version to continue from"),
    (line(), "warm", "0 warm runs since the last full one, item +0% codes"),
    (line(went(0.01, user=110)), "warm", "1 warm run since the last full one, user +10% codes, 1.0% forgotten"),
    (replace(line(), changed="model.params"), "full", "model.params has changed, which a warm run cannot follow"),
    (replace(line(), refused="r7"), "full", "warm run r7 from the serving version was rejected"),
    (TrainingHistory((went(),)), "full", "the lineage of the serving version has no full run"),
    (line(went(user=121)), "full", "user has 21% more codes than at the last full run (limit 20%)"),
    (line(*[went()] * 10), "full", "10 warm runs since the last full one (limit 10)"),
    (line(went(0.06)), "full", "6.0% forgotten since the last full run (limit 5.0%)"),
    (line(went(0.03), went(0.03)), "full", "5.9% forgotten since the last full run (limit 5.0%)"),
    (replace(line(), drift=("genres", 0.6)), "full", "drift of genres: psi 0.600 (limit 0.5)"),
]


@pytest.mark.requirement("G-09")
def test_each_reason_is_said_with_its_numbers(subtests: pytest.Subtests) -> None:
    for past, mode, said in REASONS:
        with subtests.test(past=past, mode=mode, said=said):
            found = choose(past, RULE)
            assert (found.mode, found.reason) == (mode, said)
            assert found.summary == f"auto: {mode} ({said})"


@pytest.mark.requirement("G-09")
@given(lines, limits, drifts)
def test_it_is_warm_exactly_while_every_limit_that_is_looked_at_holds(
    links: tuple[Link, ...], rule: FullRunLimits, drift: tuple[str, float] | None
) -> None:
    beyond = [
        rule.grown is not None and grown(links)[1] > rule.grown,
        rule.warm_runs is not None and warm_runs(links) >= rule.warm_runs,
        rule.forgotten is not None and forgotten(links) > rule.forgotten,
        rule.drift is not None and drift is not None and drift[1] > rule.drift,
    ]
    assert choose(TrainingHistory(links, drift=drift), rule).mode == ("full" if any(beyond) else "warm")


@given(lines, limits, drifts)
def test_a_limit_that_is_lifted_never_makes_a_run_full(
    links: tuple[Link, ...], rule: FullRunLimits, drift: tuple[str, float] | None
) -> None:
    past = TrainingHistory(links, drift=drift)
    for name in ("grown", "warm_runs", "forgotten", "drift"):
        if choose(past, rule).mode == "warm":
            assert choose(past, replace(rule, **{name: None})).mode == "warm"
    assert choose(past, FullRunLimits(None, None, None, None)).mode == "warm"


@given(lines, st.integers(1, 12))
def test_so_many_warm_runs_are_never_followed_by_another(links: tuple[Link, ...], count: int) -> None:
    """Played on: whatever each run measures, the line goes back to a full run in time."""
    rule, chain = FullRunLimits(None, count, None, None), [FULL]
    for one in links:
        chain = [one if one.mode == "warm" else went(), *chain] if choose(TrainingHistory(tuple(chain)), rule).mode == "warm" else [FULL]
        assert warm_runs(chain) <= count


@given(lines)
def test_what_is_forgotten_is_a_share_and_what_was_never_lost_is_none(links: tuple[Link, ...]) -> None:
    assert -1e-9 <= forgotten(links) <= 1
    assert forgotten([replace(one, forgotten=None if one.forgotten is None else -abs(one.forgotten)) for one in links]) == 0


def test_a_gain_before_a_loss_does_not_hide_it_and_one_after_it_makes_up_for_it() -> None:
    assert forgotten([went(0.2), went(-0.5), FULL]) == pytest.approx(0.2)
    assert forgotten([went(-0.3), went(0.2), FULL]) == 0
