"""The canary's test keeps its promises, by simulation through the code that judges."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from shared.domain.evidence import ValueSums
from shared.domain.gate import Verdict
from shared.domain.sequential_test import Judgement, StepTerms, VariantSample, bounds, judge_split, judge_step, verdict
from shared.domain.traffic import Traffic


def coins(users: int, hits: float) -> VariantSample:
    return VariantSample(users, hits, hits, users, int(hits))


def look_often(rng: random.Random, stable: float, candidate: float, weight: float, users: int, *, max_harm: float) -> Verdict:
    """A last step in which the judge looks after every batch of 50 users; ends at the first verdict."""
    counts = {True: [0, 0], False: [0, 0]}
    for seen in range(1, users + 1):
        arm = rng.random() < weight
        counts[arm][0] += 1
        counts[arm][1] += rng.random() < (candidate if arm else stable)
        if seen % 50 == 0:
            samples = {arm: coins(n, hits) for arm, (n, hits) in counts.items()}
            decision = verdict(
                samples[False], samples[True], StepTerms(max_harm=max_harm, min_users=30, steps=1, final=True, weight=weight)
            )
            if decision is not Verdict.INCONCLUSIVE:
                return decision
    return Verdict.INCONCLUSIVE


@pytest.mark.requirement("C-05")
@pytest.mark.parametrize(("rate", "weight"), [(0.5, 0.5), (0.1, 0.1), (0.3, 0.05)])
def test_an_equal_version_is_hardly_ever_rolled_back_however_often_one_looks(rate: float, weight: float) -> None:
    rng = random.Random(7)
    rolled_back = sum(look_often(rng, rate, rate, weight, 2000, max_harm=0.02) is Verdict.FAIL for _ in range(200))
    assert rolled_back <= 4  # 1% of 200 expected at the most; 5 or more would have a chance below 6%


def test_a_version_that_harms_as_much_as_allowed_is_hardly_ever_promoted() -> None:
    rng = random.Random(8)
    promoted = sum(look_often(rng, 0.5, 0.45, 0.5, 2000, max_harm=0.1) is Verdict.PASS for _ in range(200))
    assert promoted <= 4


def test_a_halved_hit_rate_is_rolled_back_at_a_tenth_of_the_users() -> None:
    rng = random.Random(9)
    assert all(look_often(rng, 0.5, 0.25, 0.1, 5000, max_harm=0.05) is Verdict.FAIL for _ in range(50))


def test_a_much_better_version_is_promoted() -> None:
    rng = random.Random(10)
    assert all(look_often(rng, 0.4, 0.5, 0.5, 5000, max_harm=0.05) is Verdict.PASS for _ in range(50))


def test_the_bounds_hold_the_estimate_and_narrow_with_users() -> None:
    widths = []
    for users in (200, 2000, 20000):
        sample = coins(users, users / 2)
        lower, upper = bounds(sample, sample, StepTerms(max_harm=0.02, steps=1, weight=0.5))
        assert lower < 0 < upper
        widths.append(upper - lower)
    assert widths == sorted(widths, reverse=True)


def test_a_few_users_who_all_agree_are_not_certainty() -> None:
    lower, upper = bounds(coins(30, 30), coins(30, 30), StepTerms(max_harm=0.02, steps=1, weight=0.5))
    assert upper - lower > 0.1


@pytest.mark.parametrize("final", [False, True])
def test_the_bounds_say_what_the_verdict_says(final: bool) -> None:
    rng = random.Random(11)
    seen = set()
    for _ in range(60):
        users, rate = round(10 ** rng.uniform(2, 5)), rng.uniform(0.05, 0.9)
        here = coins(users, round(users * rate))
        there = coins(users // 4, round(users // 4 * min(rate * rng.choice((0.5, 0.9, 0.97, 1.0, 1.05)), 1)))
        judgement = judge_step(
            here, there, StepTerms(max_harm=0.05, min_users=30, steps=3, final=final, base=rng.choice((None, rate)), weight=0.2)
        )
        if judgement.verdict is Verdict.INCONCLUSIVE and judgement.lower is None:
            continue
        assert judgement.lower is not None and judgement.upper is not None and judgement.lift is not None
        assert judgement.lower <= judgement.lift <= judgement.upper
        assert (judgement.verdict is Verdict.FAIL) == (judgement.upper < 0)
        if final and judgement.verdict is not Verdict.FAIL:
            assert (judgement.verdict is Verdict.PASS) == (judgement.lower > -0.05)
        seen.add(judgement.verdict)
    assert seen >= {Verdict.FAIL, Verdict.PASS}
    assert (Verdict.INCONCLUSIVE in seen) == final


def test_only_the_last_step_asks_for_proof_and_each_step_has_its_share_of_the_error() -> None:
    here, there = coins(1000, 300), coins(1000, 290)

    def judged(stable: VariantSample, candidate: VariantSample, *, steps: int = 1, final: bool = False) -> Verdict:
        return verdict(stable, candidate, StepTerms(max_harm=0.02, min_users=30, steps=steps, final=final, weight=0.5, base=0.3))

    assert judged(here, there) is Verdict.PASS
    assert judged(here, there, final=True) is Verdict.INCONCLUSIVE
    fails = {
        steps: next(hits for hits in range(300, 0, -1) if judged(here, coins(1000, hits), steps=steps) is Verdict.FAIL) for steps in (1, 20)
    }
    assert fails[20] < fails[1]


SAMPLES_WITHOUT_DATA: list[tuple[VariantSample, VariantSample]] = [
    (VariantSample(), VariantSample()),
    (coins(10**6, 10**5), VariantSample()),
    (coins(199, 99), coins(10**6, 10**5)),
    (coins(10**6, 0), coins(10**6, 10**5)),
]


def test_no_data_is_inconclusive(subtests: pytest.Subtests) -> None:
    for stable, candidate in SAMPLES_WITHOUT_DATA:
        with subtests.test(stable=stable, candidate=candidate):
            judgement = judge_step(stable, candidate, StepTerms(max_harm=0.02, min_users=200, steps=1, final=True, weight=0.5))
            assert judgement.verdict is Verdict.INCONCLUSIVE
            assert judgement.lower is None


def test_huge_counts_and_extreme_rates_are_judged(subtests: pytest.Subtests) -> None:
    for hits, expected in [(0, Verdict.FAIL), (10**8 - 10**6, Verdict.FAIL), (10**8, Verdict.PASS), (10**9, Verdict.PASS)]:
        with subtests.test(hits=hits, expected=expected):
            found = judge_step(
                coins(10**9, 10**8), coins(10**9, hits), StepTerms(max_harm=0.005, min_users=200, steps=5, final=True, weight=0.5)
            )
            assert found.verdict is expected
            assert found.lower is not None and found.upper is not None and -1 <= found.lower <= found.upper


def test_users_of_several_answers_are_no_reason_for_false_alarms_and_tell_more_than_coins() -> None:
    """Values between 0 and 1 say exactly what their sums say: nothing is assumed of how they spread."""
    steady = [VariantSample(2000, total, total * 0.6) for total in (1000, 930)]
    spread = [VariantSample(2000, total, total) for total in (1000, 930)]
    upper_steady, upper_spread = (
        bounds(stable, there, StepTerms(max_harm=0.02, steps=1, weight=0.5))[1] for stable, there in (steady, spread)
    )
    assert upper_steady < upper_spread


def test_the_reason_is_a_sentence_with_the_numbers() -> None:
    judgement = judge_step(coins(5000, 2500), coins(5000, 2000), StepTerms(max_harm=0.02, min_users=200, steps=1, final=False, weight=0.5))
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason.startswith("the candidate earns fewer hits: hit rate 0.400 against 0.500 (-20.0%, confidence interval -")


def split(stable: int, candidate: int, weight: float) -> Judgement:
    return judge_split(Traffic(users=stable), Traffic(users=candidate), weight)


def test_a_split_as_asked_passes_and_another_one_is_an_error() -> None:
    assert split(0, 0, 0.1).verdict is Verdict.PASS
    assert split(90_000, 10_000, 0.1).verdict is Verdict.PASS
    assert split(90_500, 9_500, 0.1).verdict is Verdict.ERROR
    assert split(89_500, 10_500, 0.1).verdict is Verdict.ERROR
    assert split(100, 0, 0.5).verdict is Verdict.ERROR
    assert "9,500 of 100,000 users saw the candidate: 9.50%, expected 10.00%" in split(90_500, 9_500, 0.1).reason


def test_a_true_split_is_hardly_ever_an_error_however_often_one_looks() -> None:
    rng = random.Random(12)
    errors = 0
    for _ in range(200):
        users = [0, 0]
        for seen in range(1, 2001):
            users[rng.random() < 0.1] += 1
            if seen % 20 == 0 and split(*users, 0.1).verdict is Verdict.ERROR:
                errors += 1
                break
    assert errors <= 2  # 0.1% of 200 expected at the most


@pytest.mark.requirement("C-05")
def test_what_is_no_number_is_an_error_and_never_a_verdict(subtests: pytest.Subtests) -> None:
    for value in [math.nan, math.inf, -math.inf]:
        for final in [False, True]:
            for spoilt in ["total", "squares"]:
                with subtests.test(value=value, final=final, spoilt=spoilt):
                    good = VariantSample(1000, 300.0, 300.0)
                    bad = replace(good, **{spoilt: value})
                    for stable, candidate in ((good, bad), (bad, good), (bad, bad)):
                        judgement = judge_step(stable, candidate, StepTerms(max_harm=0.1, min_users=100, steps=2, final=final))
                        assert judgement.verdict is Verdict.ERROR
                        assert "is not a number" in judgement.reason


def test_the_sums_of_a_sample_are_what_its_users_can_have_earned() -> None:
    """A total below nothing or above one a user is rounding; the rest stays as it was counted."""
    assert VariantSample(10).sums == ValueSums(10, 0.0, 0.0)
    assert VariantSample(10, total=0.25, squares=0.125).sums == ValueSums(10, 0.25, 0.125)
    assert VariantSample(10, total=-1e-9).sums == ValueSums(10, 0.0, 0.0)
    assert VariantSample(10, total=10 + 1e-9, squares=10.0).sums == ValueSums(10, 10.0, 0.0)
