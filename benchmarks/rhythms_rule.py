"""How often the alert EyasHitRateFell of the chart takes a rhythm for a fall, and how soon it says a real one: the rules as they are,
worked by Prometheus itself (`promtool test rules`) over the worlds of benchmarks.rhythms.

    python -m benchmarks.rhythms_rule [--weeks 100] [--users 400]

Each world is a recommender with the gauges that a platform exports, over the last hour, a value each quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.report import Row, publish
from benchmarks.rhythms import IN_A_DAY, IN_A_WEEK, LIFE, RHYTHMS, blocks_of
from shared.domain.sequential_test import VariantSample
from tests.servers.prometheus_process import program
from tests.support.alert_rules import groups

FALL_AT = 3 * IN_A_WEEK + IN_A_DAY // 2
FALLS, AT_ONCE = 20, 5
"""Worlds in which the hit rate falls, and those that one query may ask of."""
FIRING = 'ALERTS{alertname="EyasHitRateFell",alertstate="firing"}'
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


def worked(worlds: Sequence[tuple[str, str]], queries: dict[str, tuple[str, str]]) -> dict[str, dict[str, float]]:
    """The value of each query for each world; a query is an expression and the moment at which it is asked."""
    series = []
    for number, (rates, answers) in enumerate(worlds):
        labels = f'{{recommender="r{number}",version="1"}}'
        series += [{"series": f"eyas_hit_rate{labels}", "values": rates}, {"series": f"eyas_hit_rate_answers{labels}", "values": answers}]
    kept = [
        rule
        for group in groups()
        for rule in group["rules"]
        if "hit_rate" in rule.get("record", "") or rule.get("alert") == "EyasHitRateFell"
    ]
    kept = [rule for rule in kept if "slice" not in rule.get("record", "")]
    expressions = {name: f"{expression} + 0 * {number}" for number, (name, (expression, _)) in enumerate(queries.items())}
    asked = [{"expr": expressions[name], "eval_time": at, "exp_samples": []} for name, (_, at) in queries.items()]
    case = {"interval": "15m", "input_series": series, "promql_expr_test": asked}
    document: dict[str, Any] = {"rule_files": ["rules.yaml"], "evaluation_interval": "15m", "tests": [case]}
    with tempfile.TemporaryDirectory(prefix="rhythms-") as scratch:
        folder = Path(scratch)
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "hit-rate", "rules": kept}]}))
        (folder / "test.yaml").write_text(yaml.safe_dump(document, width=10**9))
        command = [program("prometheus", "promtool"), "test", "rules", str(folder / "test.yaml")]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a fixed program
    output = ended.stdout + ended.stderr
    if "SUCCESS" not in output and "got:" not in output:
        raise RuntimeError(f"promtool: {output[-2000:]}")
    got = {
        json.loads(expression): samples for expression, samples in _GOT.findall(output)
    }  # what is as expected, without a sample, isn't said
    return {
        name: {world: float(value) for world, value in _SAMPLE.findall(got.get(expression, ""))} for name, expression in expressions.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=100, help="weeks of each world, the first ones of a life not counted")
    parser.add_argument("--users", type=int, default=400, help="users of a quarter of an hour")
    options = parser.parse_args()
    lives, end = -(-options.weeks // (LIFE - 1)), f"{LIFE * 7}d"
    weeks = {f"week {week}": (f"max_over_time({FIRING}[{6 if week == 2 else 7}d])", f"{7 * week}d") for week in range(2, LIFE + 1)}
    queries = {"first week": (f"max_over_time({FIRING}[8d])", "8d"), **weeks}
    rows: list[Row] = []
    for rhythm in RHYTHMS:
        found = worked([gauges(blocks_of(rhythm, seed, LIFE, options.users)) for seed in range(lives)], queries)
        counts = Counter({name: len(worlds) for name, worlds in found.items()})
        false, number = sum(counts[name] for name in weeks), lives * len(weeks)
        note = f"{false} of {number}; first week: {counts['first week']} of {lives}"
        rows.append(Row(rhythm.name, "EyasHitRateFell", "weeks with a false alarm", "%", [100 * false / number], note=note))
        sys.stderr.write(f"{rhythm.name}: {note}\n")
    rhythm = RHYTHMS[-2]
    for loss in (0.25, 0.5):
        level: NDArray[np.float64] = np.where(np.arange(LIFE * IN_A_WEEK) >= FALL_AT, 1 - loss, 1.0)
        hours = []
        for start in range(0, FALLS, AT_ONCE):
            worlds = [gauges(blocks_of(rhythm, seed, LIFE, options.users, level)) for seed in range(start, start + AT_ONCE)]
            seconds = worked(worlds, {"first": (f"min_over_time(timestamp({FIRING})[{LIFE * 7 - 21}d:15m])", end)})["first"].values()
            hours += [moment / 3600 - FALL_AT / 4 for moment in seconds]
        note = f"missed: {FALLS - len(hours)} of {FALLS}"
        rows.append(
            Row(rhythm.name, "EyasHitRateFell", f"hours until a fall of {loss:.0%} is said", "h", hours or [float("nan")], note=note)
        )
        sys.stderr.write(f"fall of {loss:.0%}: {note}, {sorted(hours)}\n")
    publish("rhythms-rule", rows, weeks=options.weeks, users=options.users)


if __name__ == "__main__":
    main()
