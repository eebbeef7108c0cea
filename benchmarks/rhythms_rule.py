"""How often the alert EyasHitRateFell of the chart takes a rhythm for a fall, and how soon it fires for a real one: the rules as they are,
evaluated by Prometheus itself (`promtool test rules`) over the worlds of benchmarks.rhythms.

    python -m benchmarks.rhythms_rule [--weeks 100] [--users 400]

Each world is a recommender with the gauges that a platform exports, over the last hour, a value each quarter of an hour.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
import yaml

from benchmarks.harness import Fields, Outcome, Row, benchmark, scratch
from benchmarks.rhythms import IN_A_DAY, IN_A_WEEK, LIFE, RHYTHMS, blocks_of
from benchmarks.trials import finite
from shared.domain.sequential_test import VariantSample
from tests.servers.prometheus_process import program
from tests.support.alert_rules import groups

FALL_AT = 3 * IN_A_WEEK + IN_A_DAY // 2
FALLS, AT_ONCE = 20, 5
"""Worlds in which the hit rate falls, and those of one query."""
ALERT = "EyasHitRateFell"
FIRING = f'ALERTS{{alertname="{ALERT}",alertstate="firing"}}'
_GOT = re.compile(r'expr: (".*"), time: \S+,\n\s+exp: nil\n\s+got: (.*)')
_SAMPLE = re.compile(r'recommender="(\w+)"[^}]*\} ([-+.\dE]+)')


def gauges(samples: Iterator[VariantSample]) -> tuple[str, str]:
    """The hit rate and the answers of the last hour, as promtool writes series."""
    hour: deque[VariantSample] = deque(maxlen=4)
    rates, answers = [], []
    for sample in samples:
        hour.append(sample)
        count = sum(block.answers for block in hour)
        rates.append(f"{sum(block.hits for block in hour) / max(count, 1):.5f}")
        answers.append(str(count))
    return " ".join(rates), " ".join(answers)


def evaluated(worlds: Sequence[tuple[str, str]], queries: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, float]]:
    """The value of each query for each world; a query is an expression and its moment. A world without a sample has no value."""
    series = []
    for number, (rates, answers) in enumerate(worlds):
        labels = f'{{recommender="r{number}",version="1"}}'
        series += [{"series": f"eyas_hit_rate{labels}", "values": rates}, {"series": f"eyas_hit_rate_answers{labels}", "values": answers}]
    rules = [
        rule
        for group in groups()
        for rule in group["rules"]
        if rule.get("alert") == ALERT or ("hit_rate" in rule.get("record", "") and "slice" not in rule["record"])
    ]
    expressions = {name: f"{expression} + 0 * {number}" for number, (name, (expression, _)) in enumerate(queries.items())}
    tests = [{"expr": expressions[name], "eval_time": at, "exp_samples": []} for name, (_, at) in queries.items()]
    case = {"interval": "15m", "input_series": series, "promql_expr_test": tests}
    with scratch() as folder:
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "hit-rate", "rules": rules}]}))
        document = {"rule_files": ["rules.yaml"], "evaluation_interval": "15m", "tests": [case]}
        (folder / "test.yaml").write_text(yaml.safe_dump(document, width=10**9))
        command = [program("prometheus", "promtool"), "test", "rules", str(folder / "test.yaml")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a fixed program
    output = ended.stdout + ended.stderr
    if "SUCCESS" not in output and "got:" not in output:
        raise RuntimeError(f"promtool: {output[-2000:]}")
    samples = {json.loads(expression): text for expression, text in _GOT.findall(output)}
    return {
        name: {world: float(value) for world, value in _SAMPLE.findall(samples.get(expression, ""))}
        for name, expression in expressions.items()
    }


def hours_to_alert(users: int, loss: float) -> list[float]:
    """Hours from a fall to the alert, of the worlds with an alert."""
    level = np.where(np.arange(LIFE * IN_A_WEEK) >= FALL_AT, 1 - loss, 1.0)
    query = {"first": (f"min_over_time(timestamp({FIRING})[{LIFE * 7 - 21}d:15m])", f"{LIFE * 7}d")}
    hours: list[float] = []
    for start in range(0, FALLS, AT_ONCE):
        worlds = [gauges(blocks_of(RHYTHMS[-2], seed, LIFE, users, level)) for seed in range(start, start + AT_ONCE)]
        hours += [moment / 3600 - FALL_AT / 4 for moment in evaluated(worlds, query)["first"].values()]
    return hours


@benchmark("rhythms-rule")
def rhythms_rule(
    weeks: Annotated[int, "weeks of each world, the first ones of a life not counted"] = 100,
    users: Annotated[int, "users of a quarter of an hour"] = 400,
) -> Iterator[Outcome]:
    yield Fields(weeks=weeks, users=users)
    lives = -(-weeks // (LIFE - 1))
    later = {f"week {week}": (f"max_over_time({FIRING}[{6 if week == 2 else 7}d])", f"{7 * week}d") for week in range(2, LIFE + 1)}
    queries = {"first week": (f"max_over_time({FIRING}[8d])", "8d"), **later}
    for rhythm in RHYTHMS:
        alerts = evaluated([gauges(blocks_of(rhythm, seed, LIFE, users)) for seed in range(lives)], queries)
        false, windows = sum(len(alerts[name]) for name in later), lives * len(later)
        note = f"{false} of {windows}; first week: {len(alerts['first week'])} of {lives}"
        yield Row(rhythm.name, ALERT, "weeks with a false alarm", "%", [100 * false / windows], note=note)
    for loss in (0.25, 0.5):
        hours = hours_to_alert(users, loss)
        note = f"missed: {FALLS - len(hours)} of {FALLS}"
        yield Row(RHYTHMS[-2].name, ALERT, f"hours until a fall of {loss:.0%} is said", "h", finite(hours), note=note)


if __name__ == "__main__":
    rhythms_rule()
