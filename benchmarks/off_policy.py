"""What is foretold of candidates from a serving version's logged answers, beside what they would really earn.

    python -m benchmarks.off_policy [--answers 100000] [--seeds 100] [--rate 0.05]

The world is the demo's, whose hit rate of any list is known exactly. Prints for each candidate the truth, the estimates with their 90%
bounds, and over many seeds: the bias, how often each bound holds (90% is right), and how often the gate `not_worse_than: serving, by: 5%`
would let a candidate pass, fail or wait. At the end, how well the estimates order the candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Fields, Outcome, Row, benchmark, timed
from benchmarks.populations import Order, Shop, users_of
from pipelines.evaluation.off_policy import OffPolicyForecast
from shared.domain.gate import Gate, judge
from shared.domain.metric import certainty

ESTIMATORS = ("ips", "snips", "dr")
CONFIDENCE = 0.9
_REACH = NormalDist().inv_cdf(CONFIDENCE)


def measure(shop: Shop, answers: int, seeds: int) -> dict[str, list[OffPolicyForecast]]:
    """By candidate, the forecasts of each log. The orders are the same, the logs aren't."""
    serving, candidates = shop.orders(0)
    forecasts: dict[str, list[OffPolicyForecast]] = {candidate.name: [] for candidate in candidates}
    for seed in range(seeds):
        log, users = shop.log(serving, answers, seed), users_of(shop, answers, seed)
        for candidate in candidates:
            forecasts[candidate.name].append(shop.foretold(log, users, candidate))
    return forecasts


def rows(case: str, shop: Shop, forecasts: dict[str, list[OffPolicyForecast]]) -> Iterator[Row]:
    serving, candidates = shop.orders(0)
    for candidate in candidates:
        yield from _of(f"{case}: {candidate.name}", shop.earns(candidate)[1], forecasts[candidate.name], shop.earns(serving)[1])
    for name in ESTIMATORS:
        if all(name in forecast.by for of_candidate in forecasts.values() for forecast in of_candidate):
            shares = _in_order(shop, candidates, forecasts, name)
            yield Row(case, name, "pairs of candidates in the right order", "%", [100 * share for share in shares])


def _of(case: str, truth: float, forecasts: Sequence[OffPolicyForecast], serving: float) -> Iterator[Row]:
    yield Row(case, "truth", "hit rate", "", [truth], note=f"serving {serving:.4f}")
    yield Row(case, "", "effective answers", "", [forecast.effective for forecast in forecasts])
    yield Row(case, "", "support", "%", [100 * forecast.support for forecast in forecasts])
    yield Row(case, "", "said nothing", "%", [_percent([forecast.too_little is not None for forecast in forecasts])])
    for name in ESTIMATORS:
        if not all(name in forecast.by for forecast in forecasts):
            continue
        values = np.array([forecast.by[name].hit_rate for forecast in forecasts])
        reach = _REACH * np.array([forecast.by[name].se for forecast in forecasts])
        yield Row(case, name, "hit rate", "", values.tolist(), note=f"+- {np.median(reach):.4f} with 90% at either end")
        yield Row(case, name, "bias", "% of truth", [100 * float(values.mean() / truth - 1)])
        yield Row(case, name, "lower bound holds", "%", [_percent(values - reach <= truth)])
        yield Row(case, name, "upper bound holds", "%", [_percent(values + reach >= truth)])
        verdicts = Counter(_verdict(forecast, name) for forecast in forecasts)
        note = ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())
        yield Row(case, name, "gate passes", "%", [100 * verdicts["pass"] / len(forecasts)], note=note)


def _percent(holds: Sequence[bool] | NDArray[np.bool_]) -> float:
    return 100 * float(np.mean(holds))


def _verdict(forecast: OffPolicyForecast, name: str) -> str:
    """Of `{off_policy: NAME, not_worse_than: serving, by: 5%}`."""
    metric = f"hit_rate.{name}"
    gate = Gate(metric, "not_worse_than", against="serving", margin=0.05, confidence=CONFIDENCE)
    own, numbers = forecast.by[name], dict[str, float]()
    if forecast.too_little is None:
        numbers = {
            f"candidate.{metric}": own.hit_rate,
            certainty(f"candidate.{metric}"): own.se,
            certainty(f"candidate.{metric}", "serving"): own.se_to_logged,
            f"serving.{metric}": forecast.logged.hit_rate,
            certainty(f"serving.{metric}"): forecast.logged.se,
        }
    return str(judge(gate, numbers, serving=True).verdict)


def _in_order(shop: Shop, candidates: Sequence[Order], forecasts: dict[str, list[OffPolicyForecast]], name: str) -> Iterator[float]:
    """By log, the share of the pairs in the right order, of candidates whose truths differ by more than a hundredth."""
    truths = [shop.earns(candidate)[1] for candidate in candidates]
    pairs = [(a, b) for b, a in combinations(range(len(truths)), 2) if abs(truths[a] / truths[b] - 1) > 0.01]
    for of_log in zip(*(forecasts[candidate.name] for candidate in candidates), strict=True):
        values = [forecast.by[name].hit_rate for forecast in of_log]
        yield float(np.mean([(values[a] > values[b]) == (truths[a] > truths[b]) for a, b in pairs]))


@benchmark("off-policy")
def off_policy(answers: int = 100_000, seeds: int = 100, users: int = 1_000, items: int = 500, rate: float = 0.05) -> Iterator[Outcome]:
    yield Fields(answers=answers, seeds=seeds, rate=rate)
    for case, fall in (("every place is seen alike", 0.0), ("attention falls by place", 0.7)):
        shop = Shop.planted(users, items, fall=fall, rate=rate)
        seconds, forecasts = timed(partial(measure, shop, answers, seeds))
        yield from rows(case, shop, forecasts)
        yield Row(case, "all three", "time for a candidate", "s", [seconds / seeds / len(forecasts)], note=f"{answers:,} answers")


if __name__ == "__main__":
    off_policy()
