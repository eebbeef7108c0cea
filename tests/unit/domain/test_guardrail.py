"""A guardrail fails on evidence, passes where nothing speaks against the candidate, and says nothing where there is nothing to say."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from shared.domain.gate import Verdict
from shared.domain.guardrail import ALPHA, Guardrail, judge_guardrail, judge_mirror
from shared.domain.sequential_test import VariantSample
from shared.domain.traffic import ShadowCounts, Traffic, UserShares, bucket_of

ERRORS = Guardrail("errors", 0.01)
P50, P99 = Guardrail("latency_p50", 1.2, relative=True), Guardrail("latency_p99", 1.2, relative=True)
COVERAGE = Guardrail("coverage", 0.5, relative=True)
SHIFT = Guardrail("score_shift", 0.5)
CONVERSION = Guardrail("conversion", -0.05, relative=True)


def seconds(rng: random.Random) -> float:
    return rng.lognormvariate(-5, 0.4)


def answers(count: int, take: Callable[[], float], errors: int = 0) -> Traffic:
    return Traffic(count, count, errors, Counter(bucket_of(take()) for _ in range(count - errors)))


def verdict(rail: Guardrail, stable: Traffic, candidate: Traffic, min_answers: int = 100) -> Verdict:
    return judge_guardrail(rail, stable, candidate, None, min_answers).verdict


@pytest.mark.parametrize("rail", [P50, P99])
def test_five_times_the_latency_is_found_after_a_handful_of_answers(rail: Guardrail) -> None:
    rng = random.Random(1)
    stable = answers(2000, lambda: seconds(rng))
    needed = {P50: 30, P99: 10}[rail]
    found = judge_guardrail(rail, stable, answers(needed, lambda: 5 * seconds(rng)), None, 100)
    assert found.verdict is Verdict.FAIL
    assert f"{rail} is broken" in found.reason


@pytest.mark.parametrize("rail", [P50, P99])
def test_the_same_latency_is_hardly_ever_a_fault_however_often_one_looks(rail: Guardrail) -> None:
    rng = random.Random(2)
    failed = 0
    for _ in range(60):
        stable, candidate = Counter[int](), Counter[int]()
        for _ in range(25):
            stable.update(bucket_of(seconds(rng)) for _ in range(40))
            candidate.update(bucket_of(seconds(rng)) for _ in range(10))
            if verdict(rail, Traffic(0, stable.total(), 0, stable), Traffic(0, candidate.total(), 0, candidate)) is Verdict.FAIL:
                failed += 1
                break
    assert failed <= 1


def test_the_same_latency_passes_once_there_are_enough_answers() -> None:
    rng = random.Random(3)
    stable = answers(4000, lambda: seconds(rng))
    assert verdict(P99, stable, answers(1000, lambda: seconds(rng))) is Verdict.PASS
    assert verdict(P99, stable, answers(50, lambda: seconds(rng))) is Verdict.INCONCLUSIVE


def test_a_median_beyond_the_limit_is_no_pass_however_few_answers_there_are() -> None:
    stable, candidate = Counter({bucket_of(0.007): 120}), Counter({bucket_of(0.007): 42, bucket_of(0.02): 78})
    rail = Guardrail("latency_p50", 2.0, relative=True)
    assert verdict(rail, Traffic(0, 120, 0, stable), Traffic(0, 120, 0, candidate)) is Verdict.INCONCLUSIVE


def test_a_latency_passes_on_enough_times_of_its_own() -> None:
    """Answers of one batch take one time together."""
    times = Counter({bucket_of(0.007): 23})
    found = judge_guardrail(P50, Traffic(0, 150, 0, times), Traffic(0, 150, 0, times), None, 100)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.startswith("23 of 100 timed answers in the smaller variant")


def test_a_latency_in_seconds_is_held_by_the_candidate_alone_unless_the_stable_version_breaks_it_too() -> None:
    rng = random.Random(4)
    rail = Guardrail("latency_p99", 0.05)
    quick, slow = answers(1000, lambda: seconds(rng)), answers(1000, lambda: 20 * seconds(rng))
    assert verdict(rail, quick, slow) is Verdict.FAIL
    assert verdict(rail, quick, quick) is Verdict.PASS
    assert verdict(rail, slow, slow) is Verdict.INCONCLUSIVE


def test_five_percent_errors_are_found_after_some_hundred_answers_and_one_error_is_none() -> None:
    stable = Traffic(answers=5000, errors=2)
    assert verdict(ERRORS, stable, Traffic(answers=400, errors=20)) is Verdict.FAIL
    assert verdict(ERRORS, stable, Traffic(answers=10, errors=10)) is Verdict.FAIL
    assert verdict(ERRORS, stable, Traffic(answers=20, errors=1)) is Verdict.INCONCLUSIVE
    assert verdict(ERRORS, stable, Traffic(answers=400, errors=2)) is Verdict.PASS
    assert verdict(ERRORS, Traffic(answers=5000, errors=2500), Traffic(answers=400, errors=200)) is Verdict.INCONCLUSIVE


def test_errors_at_the_bound_are_hardly_ever_a_fault_however_often_one_looks() -> None:
    rng = random.Random(5)
    failed = 0
    for _ in range(300):
        errors = 0
        for seen in range(20, 2001, 20):
            errors += sum(rng.random() < 0.01 for _ in range(20))
            if verdict(ERRORS, Traffic(answers=1000), Traffic(answers=seen, errors=errors)) is Verdict.FAIL:
                failed += 1
                break
    assert failed <= 2  # 0.1% of 300 expected at the most


def test_errors_may_be_held_against_the_stable_versions() -> None:
    rail = Guardrail("errors", 2.0, relative=True)
    stable = Traffic(answers=10_000, errors=100)
    assert verdict(rail, stable, Traffic(answers=2000, errors=100)) is Verdict.FAIL
    assert verdict(rail, stable, Traffic(answers=2000, errors=30)) is Verdict.PASS
    assert verdict(rail, Traffic(answers=10_000), Traffic(answers=2000)) is Verdict.PASS


FALLBACK = Guardrail("fallback", 1.5, relative=True)


def shares(users: int, share: float) -> Traffic:
    """So many users, of whom a share got nothing but fallback answers."""
    count = round(users * share)
    return Traffic(users, 3 * users, fallback=UserShares(users, count, count), empty=UserShares(users, count, count))


@pytest.mark.requirement("U-07")
def test_more_fallback_or_empty_answers_than_allowed_are_a_fault(subtests: pytest.Subtests) -> None:
    cases = [
        (0.30, 0.60, 1000, Verdict.FAIL),
        (0.30, 0.44, 1000, Verdict.PASS),
        (0.30, 0.55, 20, Verdict.INCONCLUSIVE),
        (0.0, 0.05, 1000, Verdict.FAIL),
        (0.001, 0.009, 100_000, Verdict.PASS),  # nine times as much, and less than one percentage point
        (0.001, 0.02, 10_000, Verdict.FAIL),
        (0.0, 0.05, 60, Verdict.PASS),  # three users, who may be there by chance
        (0.0, 0.1, 60, Verdict.INCONCLUSIVE),
        (0.8, 1.0, 100_000, Verdict.PASS),
    ]
    for metric in ("fallback", "empty"):
        for theirs, ours, users, expected in cases:
            with subtests.test(metric=metric, theirs=theirs, ours=ours, users=users):
                rail = Guardrail(metric, 1.5, relative=True)
                assert verdict(rail, shares(4 * users, theirs), shares(users, ours)) is expected


def test_few_users_of_equal_versions_hardly_ever_hold_up_a_rollout() -> None:
    """Of 60 users of the candidate a twentieth is unknown, as of the stable version's 540."""
    drawn = random.Random(1)
    parts = [[sum(drawn.random() < 0.05 for _ in range(n)) / n for n in (540, 60)] for _ in range(500)]
    found = [verdict(FALLBACK, shares(540, one), shares(60, other)) for one, other in parts]
    assert found.count(Verdict.FAIL) == 0
    assert found.count(Verdict.PASS) / len(found) > 0.97


def test_a_share_of_fallbacks_may_be_held_in_itself() -> None:
    rail = Guardrail("fallback", 0.4)
    assert verdict(rail, shares(1000, 0.3), shares(1000, 0.5)) is Verdict.FAIL
    assert verdict(rail, shares(1000, 0.3), shares(1000, 0.35)) is Verdict.PASS
    assert verdict(rail, shares(1000, 0.6), shares(1000, 0.5)) is Verdict.INCONCLUSIVE


def test_users_with_a_few_fallbacks_each_count_by_their_shares() -> None:
    half = Traffic(4000, 16_000, fallback=UserShares(4000, 2000.0, 1000.0))
    found = judge_guardrail(FALLBACK, shares(4000, 0.25), half, None, 100)
    assert found.verdict is Verdict.FAIL
    assert "50.00% of the answers are fallbacks (mean of 4,000 users), 25.00% of the stable version's (4,000 users)" in found.reason


def test_equal_shares_of_fallbacks_are_hardly_ever_a_fault_however_often_one_looks(subtests: pytest.Subtests) -> None:
    rng = random.Random(11)
    for share in (0.002, 0.05, 0.4):
        failed = 0
        for _ in range(150):
            users, unknown = [0, 0], [0, 0]
            for _ in range(15):
                for arm in (0, 1):
                    users[arm] += 40
                    unknown[arm] += sum(rng.random() < share for _ in range(40))
                arms = [Traffic(n, n, fallback=UserShares(n, count, count)) for n, count in zip(users, unknown, strict=True)]
                if verdict(FALLBACK, *arms) is Verdict.FAIL:
                    failed += 1
                    break
        with subtests.test(share=share):
            assert failed <= 1


def test_fewer_items_are_a_fault_only_when_fewer_answers_cant_explain_them() -> None:
    stable = Traffic(answers=1000, looked=1000, shown=400)
    assert verdict(COVERAGE, stable, Traffic(answers=1000, looked=1000, shown=150)) is Verdict.FAIL
    assert verdict(COVERAGE, stable, Traffic(answers=1000, looked=1000, shown=300)) is Verdict.PASS
    assert verdict(COVERAGE, stable, Traffic(answers=200, looked=200, shown=150)) is Verdict.INCONCLUSIVE
    assert verdict(COVERAGE, stable, Traffic(answers=200, looked=200, shown=30)) is Verdict.FAIL
    assert verdict(COVERAGE, stable, Traffic(answers=4000, looked=4000, shown=210)) is Verdict.INCONCLUSIVE


def scores(count: int, mean: float, spread: float = 1.0) -> Traffic:
    return Traffic(answers=count, scored=count, score_total=count * mean, score_squares=count * (mean * mean + spread * spread))


def test_scores_on_another_scale_are_a_fault() -> None:
    assert verdict(SHIFT, scores(5000, 2.0), scores(500, 3.5)) is Verdict.FAIL
    assert verdict(SHIFT, scores(5000, 2.0), scores(500, 2.2)) is Verdict.PASS
    assert verdict(SHIFT, scores(5000, 2.0), scores(5, 2.6)) is Verdict.INCONCLUSIVE
    assert verdict(SHIFT, scores(5000, 2.0, spread=0), scores(500, 2.0)) is Verdict.INCONCLUSIVE


def converted(users: int, count: int) -> VariantSample:
    return VariantSample(users, count, count, converted=count)


def test_conversion_may_fall_as_far_as_allowed(subtests: pytest.Subtests) -> None:
    for count, expected in [(3000, Verdict.FAIL), (4700, Verdict.INCONCLUSIVE), (4900, Verdict.PASS), (6000, Verdict.PASS)]:
        with subtests.test(count=count, expected=expected):
            samples = (converted(10_000, 5000), converted(10_000, count))
            assert judge_guardrail(CONVERSION, Traffic(), Traffic(), samples, 100).verdict is expected


def test_nothing_to_compare_with_is_inconclusive(subtests: pytest.Subtests) -> None:
    rng = random.Random(6)
    some = answers(500, lambda: seconds(rng))
    for rail in [ERRORS, P50, P99, COVERAGE, SHIFT, CONVERSION, FALLBACK, Guardrail("errors", 2.0, relative=True)]:
        with subtests.test(rail=rail):
            for stable, candidate in ((Traffic(), Traffic()), (Traffic(), some), (some, Traffic())):
                for samples in (
                    None,
                    (VariantSample(), VariantSample()),
                    (VariantSample(), converted(500, 50)),
                    (converted(500, 50), VariantSample()),
                ):
                    found = judge_guardrail(rail, stable, candidate, samples, 100)
                    assert found.verdict is Verdict.INCONCLUSIVE
                    assert found.reason


def test_a_metric_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="guardrail 'speed': expected one of errors, "):
        Guardrail("speed", 1.0)


def test_a_guardrail_reads_as_it_is_written() -> None:
    rails = [ERRORS, FALLBACK, Guardrail("empty", 0.02), P99, Guardrail("latency_p99", 0.05), COVERAGE, SHIFT, CONVERSION]
    assert [str(rail) for rail in rails] == [
        "errors < 1.00%",
        "fallback < 1.5x",
        "empty < 2.00%",
        "latency_p99 < 1.2x",
        "latency_p99 < 50 ms",
        "coverage > 0.5x",
        "score_shift < 0.5",
        "conversion > -5.0%",
    ]


def test_a_shadow_is_judged_by_its_errors_and_latency() -> None:
    rng = random.Random(7)
    quick, slow = (Counter(bucket_of(factor * seconds(rng)) for _ in range(500)) for factor in (1, 5))
    rails = [ERRORS, P99, COVERAGE]
    good = judge_mirror(rails, ShadowCounts(500, 0, quick, quick, 450.0, 3), 100)
    assert good.verdict is Verdict.PASS
    assert good.reason.startswith("500 requests compared, 90% of the items are the same, 3 not mirrored; ")
    assert judge_mirror(rails, ShadowCounts(500, 0, quick, slow, 450.0), 100).verdict is Verdict.FAIL
    assert judge_mirror(rails, ShadowCounts(500, 100, quick, quick, 450.0), 100).verdict is Verdict.FAIL
    assert judge_mirror(rails, ShadowCounts(50, 0, Counter({1: 50}), Counter({1: 50})), 100).verdict is Verdict.INCONCLUSIVE
    assert judge_mirror([], ShadowCounts(50), 100).verdict is Verdict.INCONCLUSIVE
    assert judge_mirror(rails, ShadowCounts(), 100).verdict is Verdict.INCONCLUSIVE


def test_a_shift_of_scores_is_as_sure_as_the_normal_mixture_bound_says() -> None:
    """The bound, written down once more: at few answers, where each term of it shows."""
    for stable_count, candidate_count in ((1, 2), (3, 5), (40, 7)):
        stable = Traffic(scored=stable_count, score_total=0.0, score_squares=float(stable_count))
        candidate = Traffic(scored=candidate_count, score_total=9.0 * candidate_count, score_squares=82.0 * candidate_count)
        error = math.sqrt(1 / stable_count + 1 / candidate_count)
        radius = error * math.sqrt(2 * (math.log(1 / ALPHA) + math.log(2 * math.sqrt(min(stable_count, candidate_count) + 1))))
        found = judge_guardrail(SHIFT, stable, candidate, None, 1)
        assert f"9.00 standard deviations (at least {9 - radius:.2f} with 99.9% confidence)" in found.reason
