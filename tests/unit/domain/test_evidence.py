"""Evidence is a fair bet: on average it wins nothing while the claim is true, whatever was guessed before; counted out, not sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.domain.evidence import NOTHING, Effects, ValueSums, against_most, against_ratio, against_share, pays
from shared.domain.sequential_test import FEWER, more

STABLE, CANDIDATE = 24, 16
GUESSES: list[tuple[float | None, float | None]] = [
    (None, None),  # nothing told
    (0.4, None),  # weight
    (0.4, 0.3),  # weight and base
    (0.02, 0.9),  # both told wrong
]


def binomial(count: int, mean: float) -> NDArray[np.float64]:
    propensities = [math.comb(count, hits) * mean**hits * (1 - mean) ** (count - hits) for hits in range(count + 1)]
    return np.array(propensities)


def won(ratio: float, effects: Effects, weight: float | None, base: float | None) -> NDArray[np.float64]:
    """What the bet is worth at each pair of hits of the stable version and the candidate."""
    return np.array(
        [
            [
                math.exp(against_ratio(ValueSums(STABLE, s), ValueSums(CANDIDATE, c), ratio, effects, weight, base))
                for c in range(CANDIDATE + 1)
            ]
            for s in range(STABLE + 1)
        ]
    )


def expected(worth: NDArray[np.float64], stable: float, candidate: float) -> float:
    return float(binomial(STABLE, stable) @ worth @ binomial(CANDIDATE, candidate))


def test_a_bet_on_fewer_hits_wins_nothing_from_a_candidate_that_is_as_good_or_better(subtests: pytest.Subtests) -> None:
    for weight, base in GUESSES:
        with subtests.test(weight=weight, base=base):
            worth = won(1.0, FEWER, weight, base)
            for mean in (0.02, 0.1, 0.3, 0.6, 0.95):
                for better in (1.0, 1.02, 1.05):
                    assert expected(worth, mean, mean * better) <= 1
            assert expected(worth, 0.6, 0.1) > 10


def test_a_bet_on_enough_hits_wins_nothing_from_a_candidate_that_harms_as_much_as_allowed(subtests: pytest.Subtests) -> None:
    for weight, base in GUESSES:
        with subtests.test(weight=weight, base=base):
            worth = won(0.8, more(0.2), weight, base)
            for mean in (0.02, 0.1, 0.3, 0.6, 0.95):
                for kept in (0.8, 0.7, 0.1):
                    assert expected(worth, mean, mean * kept) <= 1
            assert expected(worth, 0.6, 0.9) > 10


def test_an_equal_candidate_wins_against_the_claim_that_it_harms_and_loses_against_the_claim_that_it_doesnt() -> None:
    """Catches the two claims in each other's place."""
    assert expected(won(0.5, more(0.5), 0.4, 0.6), 0.6, 0.6) > 5
    assert expected(won(1.0, more(0.5), 0.4, 0.6), 0.6, 0.6) <= 1


def test_a_bet_to_one_side_knows_nothing_of_the_other() -> None:
    good, bad = ValueSums(1000, 400), ValueSums(1000, 300)
    assert against_ratio(good, bad, 1.0, FEWER, 0.5) > 5
    assert against_ratio(bad, good, 1.0, FEWER, 0.5) == NOTHING
    assert against_ratio(bad, good, 1.0, more(0.05), 0.5) > 5
    assert against_ratio(good, bad, 1.0, more(0.05), 0.5) == NOTHING


@pytest.mark.parametrize("weight", [None, 0.2])
def test_evidence_grows_with_the_difference_and_with_the_users(weight: float | None) -> None:
    by_hits = [against_ratio(ValueSums(8000, 2400), ValueSums(2000, hits), 1.0, FEWER, weight, 0.3) for hits in range(200, 600, 20)]
    assert by_hits == sorted(by_hits, reverse=True)
    by_users = [against_ratio(ValueSums(80 * n, 24 * n), ValueSums(20 * n, 5 * n), 1.0, FEWER, weight, 0.3) for n in (10, 30, 100, 300)]
    assert by_users == sorted(by_users)
    assert by_users[-1] > 10


def test_telling_the_weight_and_the_base_sharpens_the_evidence() -> None:
    stable, candidate = ValueSums(95_000, 9_500), ValueSums(5_000, 380)
    told = [against_ratio(stable, candidate, 1.0, FEWER, weight, base) for weight, base in ((None, None), (0.05, None), (0.05, 0.1))]
    assert told == sorted(told)


def test_what_a_value_between_pays_is_just_fair() -> None:
    for tilt in np.concatenate([-np.geomspace(1e-3, 6, 40), np.geomspace(1e-3, 6, 40)]):
        x = np.linspace(0, 1, 2001)
        fair = 1 + x * math.expm1(tilt)
        assert (np.exp(tilt * x + pays(float(tilt)) * x * (1 - x)) <= fair * (1 + 1e-12)).all()
        assert (np.exp(tilt * x + 1.05 * pays(float(tilt)) * x * (1 - x)) > fair * (1 + 1e-12)).any()


def test_users_who_vary_less_than_coins_say_more() -> None:
    coins = against_ratio(ValueSums(5000, 2500), ValueSums(5000, 2350), 1.0, FEWER, 0.5, 0.5)
    steady = against_ratio(ValueSums(5000, 2500, 1000), ValueSums(5000, 2350, 1000), 1.0, FEWER, 0.5, 0.5)
    assert steady > coins + 2


def test_a_bet_with_values_between_is_fair_as_well() -> None:
    """Users of three answers each, whose own rates spread: all sums that five such users can have, counted out."""
    value = np.array([0, 1 / 3, 2 / 3, 1])
    for mean in (0.3,):
        a, b = 2 * mean, 2 * (1 - mean)
        beta = [math.comb(3, k) * math.exp(_log_beta(k + a, 3 - k + b) - _log_beta(a, b)) for k in range(4)]
        arm: dict[tuple[int, int], float] = {(0, 0): 1.0}
        for _ in range(5):
            following: dict[tuple[int, int], float] = {}
            for (thirds, between), chance in arm.items():
                for k in range(4):
                    place = (thirds + k, between + (k in (1, 2)))
                    following[place] = following.get(place, 0.0) + chance * beta[k]
            arm = following
        sums = {ValueSums(5, thirds / 3, between * float(value[1] * value[2])): chance for (thirds, between), chance in arm.items()}
        for ratio, effects in ((1.0, FEWER), (1.0, more(0.3))):
            worth = sum(
                p * q * math.exp(against_ratio(stable, candidate, ratio, effects, 0.5, mean))
                for stable, p in sums.items()
                for candidate, q in sums.items()
            )
            assert 0.2 < worth <= 1


def test_finding_soon_that_nothing_is_enough_changes_no_verdict() -> None:
    enough = math.log(100)
    for hits in range(0, 500, 10):
        stable, candidate = ValueSums(9000, 2700), ValueSums(1000, hits)
        full = against_ratio(stable, candidate, 1.0, FEWER, 0.1, 0.3)
        assert (against_ratio(stable, candidate, 1.0, FEWER, 0.1, 0.3, enough) >= enough) == (full >= enough)


def test_bets_on_one_share_are_fair_and_find_what_is_far_off() -> None:
    for share in (0.01, 0.2, 0.5):
        one_sided = np.exp([against_most(60, hits, share) for hits in range(61)])
        assert all(binomial(60, mean) @ one_sided <= 1 for mean in (share, share / 2))
        assert binomial(60, min(10 * share, 0.9)) @ one_sided > 10
        both = np.exp([against_share(60, hits, share) for hits in range(61)])
        assert binomial(60, share) @ both == pytest.approx(1)
    assert against_most(3, 3, 0.01) > math.log(1000)


def test_nothing_overflows(subtests: pytest.Subtests) -> None:
    for weight, base in [(None, None), (0.0, 0.0), (1e-12, 1.0), (0.5, 1e-9), (1 - 1e-12, 0.5), (1.0, None)]:
        for sums in [
            (ValueSums(0, 0), ValueSums(0, 0)),
            (ValueSums(10, 0), ValueSums(0, 0)),
            (ValueSums(10, 0), ValueSums(10, 0)),
            (ValueSums(10, 10), ValueSums(10, 10)),
            (ValueSums(10, 10), ValueSums(10, 0)),
            (ValueSums(10, 0), ValueSums(10, 10)),
            (ValueSums(10**12, 10**11), ValueSums(10**12, 10**11 - 10**5)),
            (ValueSums(10**12, 10**12), ValueSums(10**10, 1)),
            (ValueSums(10**12, 1), ValueSums(1, 1)),
            (ValueSums(100, 50, 25), ValueSums(100, 20, 16)),
        ]:
            with subtests.test(weight=weight, base=base, sums=sums):
                for ratio in (1e-6, 0.5, 1.0, 1.5, 21.0):
                    for effects in (FEWER, more(0.001), more(0.99)):
                        found = against_ratio(*sums, ratio, effects, weight, base)
                        assert found == NOTHING or math.isfinite(found)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
