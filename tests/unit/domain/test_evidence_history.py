"""The looks that are kept show the whole way, however long it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.codec import decode, encode
from shared.domain.evidence_history import MOST, LookBounds, looked, thinned
from shared.domain.gate import Verdict
from shared.domain.rollout import RolloutStatus
from shared.domain.sequential_test import Judgement, VariantSample
from shared.domain.step_analysis import StepReport

pytestmark = pytest.mark.requirement("C-01")

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def look(second, step=0, users=0):
    return LookBounds(NOW + timedelta(seconds=second), step, 1, users, users, "inconclusive")


def report(users, step=0):
    judged = Judgement(Verdict.INCONCLUSIVE, "not yet", 0.1, -0.2, 0.3)
    return StepReport(step, 0.5, NOW, VariantSample(users), VariantSample(users + 1), judged)


def test_a_look_keeps_who_was_seen_and_the_bounds():
    (one,) = looked((), report(7), 4, NOW)
    assert (one.against, one.stable, one.candidate, one.lift, one.lower, one.upper) == (4, 7, 8, 0.1, -0.2, 0.3)


def test_looks_that_see_nothing_new_take_no_place():
    kept = ()
    for second in range(50):
        kept = looked(kept, report(7), 4, NOW + timedelta(seconds=second))
    assert [one.at for one in kept] == [NOW, NOW + timedelta(seconds=49)]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 3)), min_size=1, max_size=300))
def test_any_way_is_kept_in_few_looks_with_both_ends_of_each_step(given):
    kept, at, step = (), 0, 0
    ends = {}
    for count, (pause, up) in enumerate(given):
        at, step = at + pause, min(step + (up == 3), 19)
        kept = looked(kept, report(count, step), 1, NOW + timedelta(seconds=at))
        ends.setdefault(step, [kept[-1].stable, 0])[1] = kept[-1].stable
    assert len(kept) <= MOST
    assert [one.stable for one in kept] == sorted(one.stable for one in kept)
    for step, (first, last) in ends.items():
        of_step = [one.stable for one in kept if one.step == step]
        assert (of_step[0], of_step[-1]) == (first, last)


def test_a_long_even_way_is_kept_evenly():
    kept = ()
    for second in range(5000):
        kept = thinned((*kept, look(second, users=second)))
    apart = [(b.at - a.at).total_seconds() for a, b in pairwise(kept)]
    assert len(kept) == MOST
    assert max(apart) <= 5000 / MOST * 4


def test_a_status_without_looks_can_still_be_read():
    old = encode(RolloutStatus, RolloutStatus("canary"))
    del old["looks"]
    assert decode(RolloutStatus, old).looks == ()
