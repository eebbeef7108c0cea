"""What is foretold of candidates from a serving version's logged answers, beside what they would really earn.

    python -m benchmarks.off_policy [--answers 100000] [--seeds 100] [--rate 0.05]

The world is the demo's, whose hit rate of any list is known exactly. Prints for each candidate the truth, the estimates with their 90%
bounds, and over many seeds: the bias, how often each bound holds (90% is right), and how often the gate `not_worse_than: serving, by: 5%`
would let a candidate pass, fail or wait. At the end, how well the estimates order the candidates.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from benchmarks.off_policy_worlds import Order, Shop, users_of
from benchmarks.report import Row, publish
from pipelines.evaluation.off_policy import OffPolicyForecast
from shared.domain.gate import Gate, judge
from shared.domain.metric import certainty

ESTIMATORS = ("ips", "snips", "dr")
CONFIDENCE = 0.9
_REACH = NormalDist().inv_cdf(CONFIDENCE)


def measure(shop: Shop, answers: int, seeds: int, by_place: bool = False) -> dict[str, list[OffPolicyForecast]]:
    """By candidate, what each log foretells. The orders are the same, the logs aren't."""
    serving, candidates = shop.orders(0)
    forecasts: dict[str, list[OffPolicyForecast]] = {candidate.name: [] for candidate in candidates}
    for seed in range(seeds):
        log, users = shop.log(serving, answers, seed), users_of(shop, answers, seed)
        for one in candidates:
            forecasts[one.name].append(shop.foretold(log, users, one, by_place))
    return forecasts


def rows(case: str, shop: Shop, forecasts: dict[str, list[OffPolicyForecast]]) -> list[Row]:
    serving, candidates = shop.orders(0)
    result_rows: list[Row] = []
    for one in candidates:
        truth = shop.earns(one)[1]
        result_rows += _of(case, one, truth, forecasts[one.name], shop.earns(serving)[1])
    for name in ESTIMATORS:
        orders = [
            _agreement(shop, candidates, [forecasts[candidate.name][seed] for candidate in candidates], name) for seed in _seeds(forecasts)
        ]
        if all(order is not None for order in orders):
            result_rows.append(
                Row(case, name, "pairs of candidates in the right order", "%", [100 * order for order in orders if order is not None])
            )
    return result_rows


def _of(case: str, order: Order, truth: float, forecasts: Sequence[OffPolicyForecast], serving: float) -> list[Row]:
    where, usual = f"{case}: {order.name}", [each.by[name] for name in ("snips",) for each in forecasts if name in each.by]
    told = [
        Row(where, "truth", "hit rate", "", [truth], note=f"serving {serving:.4f}"),
        Row(where, "", "effective answers", "", [each.effective for each in forecasts]),
        Row(where, "", "support", "%", [100 * each.support for each in forecasts]),
        Row(where, "", "said nothing", "%", [100 * float(np.mean([each.too_little is not None for each in forecasts]))]),
    ]
    assert usual
    for name in ESTIMATORS:
        if not all(name in each.by for each in forecasts):
            continue
        values = np.array([each.by[name].hit_rate for each in forecasts])
        errors = np.array([each.by[name].se for each in forecasts])
        told.append(Row(where, name, "hit rate", "", values.tolist(), note=f"+- {np.median(_REACH * errors):.4f} with 90% at either end"))
        told.append(Row(where, name, "bias", "% of truth", [100 * float(values.mean() / truth - 1)]))
        told.append(Row(where, name, "lower bound holds", "%", [100 * float(np.mean(values - _REACH * errors <= truth))]))
        told.append(Row(where, name, "upper bound holds", "%", [100 * float(np.mean(values + _REACH * errors >= truth))]))
        verdicts = Counter(_verdict(each, name) for each in forecasts)
        told.append(
            Row(
                where,
                name,
                "gate passes",
                "%",
                [100 * verdicts["pass"] / len(forecasts)],
                note=", ".join(f"{k} {n}" for k, n in verdicts.items()),
            )
        )
    return told


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


def _agreement(shop: Shop, candidates: Sequence[Order], forecasts: Sequence[OffPolicyForecast], name: str) -> float | None:
    """Of pairs of candidates whose truths differ by more than a hundredth, how many stand in the right order."""
    if not all(name in each.by for each in forecasts):
        return None
    truths, values = [shop.earns(candidate)[1] for candidate in candidates], [each.by[name].hit_rate for each in forecasts]
    pairs = [(a, b) for a in range(len(truths)) for b in range(a) if abs(truths[a] / truths[b] - 1) > 0.01]
    return float(np.mean([(values[a] > values[b]) == (truths[a] > truths[b]) for a, b in pairs]))


def _seeds(forecasts: dict[str, list[OffPolicyForecast]]) -> range:
    return range(len(next(iter(forecasts.values()))))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.off_policy")
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.05)
    given = parser.parse_args()
    told: list[Row] = []
    for case, fall in (("every place is seen alike", 0.0), ("attention falls by place", 0.7)):
        shop = Shop.planted(given.users, given.items, fall=fall, rate=given.rate)
        since = time.monotonic()
        found = measure(shop, given.answers, given.seeds)
        told += rows(case, shop, found)
        seconds = (time.monotonic() - since) / given.seeds / len(found)
        told.append(Row(case, "all three", "time for a candidate", "s", [seconds], note=f"{given.answers:,} answers"))
    publish("off-policy", told, answers=given.answers, seeds=given.seeds, rate=given.rate)


if __name__ == "__main__":
    main()
