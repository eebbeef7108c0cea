"""Planted traffic for the objectives: outages that must alert and noise that must not, as test cases for promtool."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.alert_rules import rules

BUDGETS: Mapping[str, float] = {"recommend_errors": 0.001, "recommend_slow": 0.01, "control_errors": 0.001, "control_slow": 0.01}
ALERTS: Mapping[str, tuple[str, str]] = {
    "recommend_errors": ("EyasErrorBudgetBurnsFast", "EyasErrorBudgetBurns"),
    "recommend_slow": ("EyasLatencyBudgetBurnsFast", "EyasLatencyBudgetBurns"),
    "control_errors": ("EyasControlErrorBudgetBurnsFast", "EyasControlErrorBudgetBurns"),
    "control_slow": ("EyasControlLatencyBudgetBurnsFast", "EyasControlLatencyBudgetBurns"),
}
"""The fast and the slow alert of each objective."""
_STEADY = 6000
"""Requests in each minute of a second recommender, which misses none."""


@dataclass(frozen=True)
class Minute:
    """What one replica counts in a minute."""

    requests: int
    misses: int = 0
    scraped: bool = True
    restarted: bool = False
    """Whether the process restarted before this minute: its counters start at 0."""
    base: tuple[int, int] = (0, 0)
    """Requests and misses that were counted before the first minute."""


Traffic = Callable[[float, random.Random], Sequence[Sequence[Minute]]]
"""Returns the minutes of each replica for an objective's budget."""


Minutes = tuple[Sequence[int], Sequence[int]]
"""Of the fast alert and of the slow alert."""


@dataclass(frozen=True)
class Scenario:
    """`firing` and `silent`: minutes at which the alerts must fire, or must not."""

    name: str
    traffic: Traffic
    firing: Minutes = ((), ())
    silent: Minutes = ((), ())
    step: int = 1
    """Minutes between evaluations."""
    only: str = ""
    """Part of the names of the objectives that it is for."""
    refused: int = 0
    """Requests that the control plane refuses (4xx) in each minute."""


def steady(minutes: int, requests: int, share: float) -> list[Minute]:
    """The same share of misses in each minute, exact over time."""
    counts = [
        math.floor(share * requests * (minute + 1) + 1e-6) - math.floor(share * requests * minute + 1e-6) for minute in range(minutes)
    ]
    return [Minute(requests, misses) for misses in counts]


def drawn(minutes: int, requests: int, share: float, chance: random.Random) -> list[Minute]:
    """Each request misses independently."""
    return [Minute(requests, _binomial(requests, share, chance)) for _ in range(minutes)]


def _binomial(count: int, share: float, chance: random.Random) -> int:
    """Draws the gaps between misses, so that rare misses cost little."""
    misses, place = 0, 0.0
    while True:
        place += math.floor(math.log(1 - chance.random()) / math.log1p(-share)) + 1
        if place > count:
            return misses
        misses += 1


def _phases(*phases: tuple[int, float], requests: int = 600) -> Traffic:
    """Minutes, and their share of misses in units of the budget; at most all requests miss."""
    return lambda budget, _: [[minute for length, burn in phases for minute in steady(length, requests, min(1, burn * budget))]]


def _one_of_three(budget: float, _: random.Random) -> list[list[Minute]]:
    broken = [*steady(60, 200, 0), *steady(60, 200, 1), *steady(60, 200, 0)]
    return [broken, steady(180, 200, 0), steady(180, 200, 0)]


def _crash_loop(budget: float, _: random.Random) -> list[list[Minute]]:
    """A replica restarts every ten minutes and misses much in between."""
    minutes = [*steady(60, 600, 0), *steady(60, 600, 50 * budget), *steady(60, 600, 0)]
    return [[replace(minute, restarted=at % 10 == 0) for at, minute in enumerate(minutes)]]


def _from_the_start(budget: float, _: random.Random) -> list[list[Minute]]:
    """A new process, of which no sample exists. Its first requests miss the objective."""
    return [[*[Minute(0, scraped=False)] * 10, *steady(20, 600, 1), *steady(150, 600, 0)]]


def _rare(minutes: int) -> list[Minute]:
    return [Minute(int(at % 10 == 0)) for at in range(minutes)]


def _single(budget: float, _: random.Random) -> list[list[Minute]]:
    return [[*_rare(100), Minute(1, 1), *_rare(259)]]


def _first_request(budget: float, _: random.Random) -> list[list[Minute]]:
    return [[*[Minute(0, scraped=False)] * 5, Minute(0), Minute(1, 1), *_rare(353)]]


def _bursts(budget: float, _: random.Random) -> list[list[Minute]]:
    """Seven misses in a minute, every six hours."""
    return [[Minute(60, 7 if at % 360 == 180 else 0) for at in range(1440)]]


def _deployment(budget: float, _: random.Random) -> list[list[Minute]]:
    """Three replicas restart one after another; each loses a scrape and misses a few requests."""
    replicas = []
    for at in (100, 103, 106):
        minutes = steady(360, 200, 0)
        minutes[at], minutes[at + 1] = Minute(0, scraped=False), Minute(200, 3, restarted=True)
        replicas.append(minutes)
    return replicas


def _resets(budget: float, _: random.Random) -> list[list[Minute]]:
    """Every half hour the counters start at 0. They have counted misses of an outage before."""
    return [
        [
            replace(minute, restarted=at % 30 == 29, base=(50_000, 20_000) if at == 0 else (0, 0))
            for at, minute in enumerate(steady(360, 600, 0))
        ]
    ]


def _gaps(budget: float, chance: random.Random) -> list[list[Minute]]:
    """Scrapes fail at random for up to three minutes, at half of the budget."""
    gaps = {at + more for at in range(720) if chance.random() < 0.05 for more in range(chance.randint(1, 3))}
    return [[replace(minute, scraped=at not in gaps) for at, minute in enumerate(drawn(720, 600, budget / 2, chance))]]


def _random(requests: int, minutes: int = 720) -> Traffic:
    return lambda budget, chance: [drawn(minutes, requests, budget / 2, chance)]


HOUR, DAY = 60, 1440
TOTAL = math.inf
NEVER = range(0)


def _from(first: int, last: int, step: int = 1) -> range:
    return range(first, last + 1, step)


OUTAGES: Sequence[Scenario] = (
    Scenario(
        "all for five minutes, after six hours",
        _phases((6 * HOUR, 0), (5, TOTAL), (HOUR, 0)),
        firing=(_from(363, 390), NEVER),
        silent=((*_from(0, 360, 6), *_from(402, 424)), _from(0, 360, 6)),
        only="errors",
    ),
    Scenario(
        "all for fifteen minutes, after six hours",
        _phases((6 * HOUR, 0), (15, TOTAL), (HOUR, 0)),
        firing=(_from(373, 377), NEVER),
        silent=((*_from(0, 360, 6), *_from(412, 434)), _from(0, 360, 6)),
    ),
    Scenario(
        "50 budgets for an hour",
        _phases((HOUR, 0), (HOUR, 50), (2 * HOUR, 0)),
        firing=(_from(84, 120), NEVER),
        silent=((*_from(0, 60), *_from(155, 239)), _from(0, 60)),
    ),
    Scenario(
        "20 budgets for an hour, after six hours",
        _phases((6 * HOUR, 0), (HOUR, 20), (HOUR, 0)),
        firing=(_from(410, 420), NEVER),
        silent=((*_from(0, 396, 6), *_from(430, 479)), NEVER),
    ),
    Scenario(
        "8 budgets for six hours, after six hours",
        _phases((6 * HOUR, 0), (6 * HOUR, 8), (HOUR, 0)),
        firing=(_from(650, 720, 10), NEVER),
        silent=((*_from(0, 600, 20), *_from(760, 778, 2)), NEVER),
        step=2,
    ),
    Scenario(
        "one of three replicas for an hour",
        _one_of_three,
        firing=(_from(80, 120), NEVER),
        silent=((*_from(0, 60), *_from(155, 179)), _from(0, 60)),
    ),
    Scenario(
        "50 budgets for an hour in a crash loop",
        _crash_loop,
        firing=(_from(84, 120), NEVER),
        silent=((*_from(0, 60), *_from(155, 179)), _from(0, 60)),
    ),
    Scenario(
        "all from the first request on",
        _from_the_start,
        firing=(_from(18, 30), _from(18, 30)),
        silent=(_from(0, 10), _from(0, 10)),
    ),
    Scenario(
        "5 budgets for three days",
        _phases((3 * DAY, 5)),
        firing=(NEVER, _from(HOUR, 3 * DAY - 5, HOUR)),
        silent=(_from(0, 3 * DAY - 5, HOUR), NEVER),
        step=5,
    ),
    Scenario(
        "4 budgets for a day, 5 requests a minute",  # 28 misses: too few for the alert over three days
        _phases((DAY, 4), (5 * HOUR, 0), requests=5),
        firing=(NEVER, _from(12 * HOUR, DAY, 20)),
        silent=(_from(0, DAY + 295, HOUR), _from(DAY + 140, DAY + 295, 5)),
        step=5,
        only="errors",
    ),
    Scenario(
        "4 budgets for a day, after a day",
        _phases((DAY, 0), (DAY, 4), (10 * HOUR, 0)),
        firing=(NEVER, _from(DAY + 10 * HOUR, 2 * DAY, 20)),
        silent=(_from(0, 2 * DAY + 595, 20), (*_from(0, DAY + 6 * HOUR, 20), *_from(2 * DAY + 380, 2 * DAY + 595, 20))),
        step=5,
    ),
    Scenario(
        "1.5 budgets for three days, after a day",
        _phases((DAY, 0), (3 * DAY, 1.5)),
        firing=(NEVER, _from(3 * DAY + 120, 4 * DAY - 5, HOUR)),
        silent=(_from(0, 4 * DAY - 5, HOUR), _from(0, 2 * DAY + 20 * HOUR, HOUR)),
        step=5,
    ),
    Scenario(
        "50 budgets for an hour in a storm of 4xx",
        _phases((HOUR, 0), (HOUR, 50), (HOUR, 0)),
        firing=(_from(84, 120), NEVER),
        silent=(_from(0, 60), _from(0, 60)),
        refused=100_000,
        only="control_errors",
    ),
)
"""What must alert."""


def _noise(name: str, traffic: Traffic, minutes: int, step: int = 2, refused: int = 0) -> Scenario:
    return Scenario(name, traffic, silent=(range(0, minutes, step), range(0, minutes, step)), step=step, refused=refused)


NOISE: Sequence[Scenario] = (
    _noise("one miss at low traffic", _single, 360),
    _noise("the first request misses", _first_request, 360),
    _noise("half of the budget at random, 100 requests a second", _random(6000), 720),
    _noise("half of the budget at random, 10 requests a second", _random(600), 720),
    _noise("half of the budget at random, 1 request a second", _random(60), 720),
    _noise("half of the budget at random for three days, 10 requests a minute", _random(10, 3 * DAY), 3 * DAY, 5),
    _noise("bursts of seven misses", _bursts, DAY),
    _noise("a deployment", _deployment, 360),
    _noise("counters that start again", _resets, 360),
    _noise("scrapes that fail at random", _gaps, 720),
    _noise("all for five minutes, 1 request a minute", _phases((HOUR, 0), (5, TOTAL), (3 * HOUR, 0), requests=1), 244),
    _noise("a storm of 4xx", _phases((6 * HOUR, 0.5)), 360, refused=100_000),
)
"""What must not alert."""


def case(scenario: Scenario) -> dict[str, Any]:
    """Returns a test case for promtool, which plants the scenario for each objective."""
    series: list[tuple[str, str]] = []
    expected: list[dict[str, Any]] = []
    for slo, budget in BUDGETS.items():
        if scenario.only in slo:
            replicas = scenario.traffic(budget, random.Random(f"{slo} {scenario.name}"))
            length = len(replicas[0])
            series += [counter for number, minutes in enumerate(replicas) for counter in _series(slo, "films", str(number), minutes)]
            series += _series(slo, "books", "0", [Minute(_STEADY)] * length) if slo.startswith("recommend") else []
            expected += _expectations(slo, scenario)
    series.append(('eyas_api_requests_total{kind="read",outcome="refused",instance="0"}', f"0+{scenario.refused}x{length}"))
    inputs = [{"series": name, "values": values} for name, values in series]
    return {"name": scenario.name, "interval": "1m", "input_series": inputs, "promql_expr_test": expected}


def _expectations(slo: str, scenario: Scenario) -> list[dict[str, Any]]:
    return [
        _expected(slo, alert, minute, fires)
        for fires, of_alerts in ((True, scenario.firing), (False, scenario.silent))
        for alert, minutes in zip(ALERTS[slo], of_alerts, strict=True)
        for minute in minutes
    ]


def _expected(slo: str, alert: str, minute: int, fires: bool) -> dict[str, Any]:
    labels = {"alertname": alert, "alertstate": "firing", "slo": slo, "severity": rules("alert")[alert]["labels"]["severity"]}
    labels |= {"recommender": "films"} if slo.startswith("recommend") else {}
    sample = {"labels": "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}", "value": 1}
    expression = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": [sample] if fires else []}


def _series(slo: str, recommender: str, instance: str, minutes: Sequence[Minute]) -> list[tuple[str, str]]:
    """Counters of good requests and of misses, or those of a histogram."""
    requests = _counted(minutes, lambda minute: minute.requests, sum(minutes[0].base))
    misses = _counted(minutes, lambda minute: minute.misses, minutes[0].base[1])
    good = _counted(minutes, lambda minute: minute.requests - minute.misses, minutes[0].base[0])
    of_recommender = f'recommender="{recommender}",variant="stable",instance="{instance}"'
    of_control = f'kind="read",instance="{instance}"'
    return {
        "recommend_errors": [
            (f'eyas_recommend_requests_total{{version="1",outcome="ok",{of_recommender}}}', good),
            (f'eyas_recommend_requests_total{{version="1",outcome="error",{of_recommender}}}', misses),
        ],
        "recommend_slow": [
            (f"eyas_recommend_seconds_count{{{of_recommender}}}", requests),
            (f'eyas_recommend_seconds_bucket{{le="0.25",{of_recommender}}}', good),
        ],
        "control_errors": [
            (f'eyas_api_requests_total{{outcome="ok",{of_control}}}', good),
            (f'eyas_api_requests_total{{outcome="error",{of_control}}}', misses),
        ],
        "control_slow": [
            (f"eyas_api_seconds_count{{{of_control}}}", requests),
            (f'eyas_api_seconds_bucket{{le="1.0",{of_control}}}', good),
        ],
    }[slo]


def _counted(minutes: Sequence[Minute], of: Callable[[Minute], int], total: int) -> str:
    """Returns the samples of a counter, in promtool's notation."""
    samples = []
    for minute in minutes:
        total = (0 if minute.restarted else total) + of(minute)
        samples.append(str(total) if minute.scraped else "_")
    return " ".join(samples)
