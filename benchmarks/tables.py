"""Rows out of runs, and the answer of a benchmark's own child process."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Never

from benchmarks.harness import Row


def rows_of_runs(case: str, contender: str, runs: Sequence[Mapping[str, float]], units: Mapping[str, str], note: str = "") -> Iterator[Row]:
    """A row for each metric that the runs have."""
    for metric, unit in units.items():
        if metric in runs[0]:
            yield Row(case, contender, metric, unit, [run[metric] for run in runs], note=note)


def with_ratios(rows: Iterable[Row], *metrics: str) -> Iterator[Row]:
    """Adds to rows of these metrics the ratio of their median to that of each other contender of the case."""
    rows = list(rows)
    medians = {(row.case, row.metric, row.contender): statistics.median(row.values) for row in rows}
    for row in rows:
        own = medians[row.case, row.metric, row.contender]
        contender_medians = {name: median for (case, metric, name), median in medians.items() if (case, metric) == (row.case, row.metric)}
        ratios = {name: own / median for name, median in contender_medians.items() if name != row.contender}
        yield replace(row, ratio_to=ratios) if row.metric in metrics else row


def answer(document: Mapping[str, Any]) -> Never:
    """Prints the JSON that the parent process reads, and ends the process."""
    sys.stdout.write(json.dumps(document) + "\n")
    raise SystemExit(0)
