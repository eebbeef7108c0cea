"""The cost of the rules for a Prometheus: series and seconds, by the number of recommenders.

Every metric of `shared.telemetry` is exported for each of them, by the platform's own library, with a few values of every other label; what
answers count goes up meanwhile. A real Prometheus scrapes it and works the chart's rules as they are. `--days` gives it a past of what the
budgets' long windows read, a sample a minute, by promtool.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import psutil
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from benchmarks.harness import Fields, Outcome, Row, benchmark, cpu_seconds, scratch, until
from shared.telemetry import metrics
from tests.servers.alerting import Prometheus
from tests.servers.prometheus_process import program

VALUES = {
    "variant": ("stable",),
    "outcome": ("ok", "error"),
    "state": ("registered", "failed", "rolled_back"),
    "stage": ("etl", "train", "evaluate", "refit", "export", "verify"),
    "trigger": ("drift", "kpi"),
    "slice": ("new_users", "known_users"),
    "feature": ("genres", "year"),
}
"""Of each label but `recommender`; of others there is one."""
GROWING = ("eyas_recommend_requests", "eyas_recommend_seconds")
RATES = {
    ("slo_requests", "recommend_errors"): 10.0,
    ("slo_misses", "recommend_errors"): 0.002,
    ("slo_requests", "recommend_slow"): 10.0,
    ("slo_misses", "recommend_slow"): 0.02,
}
"""The values, by name and objective, that recording rules would have written before the benchmark begins."""
EVALUATION = 30
HOURLY = 3600
"""Interval of a group that is not measured: it takes little, and its next evaluation is far away."""


def export(recommenders: int) -> Iterator[Any]:
    """Makes the series; yields those of answers, which are to grow."""
    names = [f"recommender-{number:05d}" for number in range(recommenders)]
    for metric in vars(metrics).values():
        if not isinstance(metric, Counter | Gauge | Histogram) or "recommender" not in metric._labelnames:
            continue
        others = [VALUES.get(label, ("x",)) for label in metric._labelnames if label != "recommender"]
        for name, more in itertools.product(names, itertools.product(*others)):
            values = iter(more)
            series = metric.labels(*(name if label == "recommender" else next(values) for label in metric._labelnames))
            if metric in (metrics.REQUESTS, metrics.REQUEST_SECONDS) and "error" not in more:
                yield series


def served() -> ThreadingHTTPServer:
    """Written once but for what grows: the library takes longer to write so many than Prometheus waits."""
    names = [f"{name}{suffix}" for name in GROWING for suffix in ("_total", "_bucket", "_count", "_sum")]
    growing = REGISTRY.restricted_registry(names)
    lines = generate_latest().decode().splitlines(keepends=True)
    rest = "".join(line for line in lines if not line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(GROWING)).encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(rest + generate_latest(growing))

        def log_message(self, *_: object) -> None: ...

    return ThreadingHTTPServer(("127.0.0.1", 0), Page)


def grow(series: list[Any], over: threading.Event) -> None:
    while not over.wait(1):
        for metric in series:
            metric.observe(0.01) if hasattr(metric, "observe") else metric.inc()


def past(folder: Path, recommenders: int, days: int) -> None:
    """Blocks of recorded samples until a moment ago."""
    now = int(time.time()) // 60 * 60
    text = folder / "past.txt"
    with text.open("w") as stream:
        for (name, slo), rate in sorted(RATES.items()):
            stream.write(f"# TYPE eyas:{name}:rate5m gauge\n" if slo == "recommend_errors" else "")
            for number in range(recommenders):
                head = f'eyas:{name}:rate5m{{recommender="recommender-{number:05d}",slo="{slo}"}} {rate} '
                stream.writelines(f"{head}{at}\n" for at in range(now - days * 86400, now, 60))
        stream.write("# EOF\n")
    command = [program("prometheus", "promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    text.unlink()


@benchmark("alerting-cost")
def alerting_cost(
    recommenders: int = 1000, days: int = 0, rounds: Annotated[int, "evaluations that are waited for"] = 5
) -> Iterator[Outcome]:
    yield Fields(bench=f"alerting-cost-{recommenders}-{days}")
    growing, page, over, every = list(export(recommenders)), served(), threading.Event(), f"{EVALUATION}s"
    threading.Thread(target=grow, args=(growing, over), daemon=True).start()
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with scratch() as folder:
        if days:
            past(folder, recommenders, days)
        with Prometheus(folder, [f"http://127.0.0.1:{page.server_port}"], scrape=every, evaluation=every) as prometheus:
            yield from _measure(prometheus, rounds, f"{recommenders:,} recommenders, {days} days before")
    over.set()


def _measure(prometheus: Prometheus, rounds: int, case: str) -> Iterator[Row]:
    current, past_rates = "eyas_recommend_requests_total offset 1m", "eyas:recommend_requests:rate5m"
    until("a rate", lambda: prometheus.series(current) and prometheus.series(past_rates), 600)
    process = psutil.Process(prometheus.pid)
    began, used = time.monotonic(), cpu_seconds([process])
    evaluations: dict[str, dict[str, float]] = defaultdict(dict)
    """Seconds, by group and moment."""

    def is_measured() -> bool:
        groups = [group for group in prometheus.groups() if float(group["interval"]) < HOURLY]
        for group in groups:
            if group["evaluationTime"]:
                evaluations[group["name"]][group["lastEvaluation"]] = group["evaluationTime"]
        return len(evaluations) == len(groups) and min(map(len, evaluations.values())) >= rounds

    until("rounds enough", is_measured, rounds * EVALUATION * 16, 0.05)
    every = {group["name"]: float(group["interval"]) for group in prometheus.groups()}
    seconds = {name: list(own.values()) for name, own in evaluations.items()}
    busy = sum(statistics.median(own) / every[name] for name, own in seconds.items())
    share = 100 * (cpu_seconds([process]) - used) / (time.monotonic() - began)
    (scraped,) = (value for _, value in prometheus.samples("scrape_samples_scraped", "2m")[-1:])
    yield Row(case, "the platform", "series scraped", "", [scraped])
    yield Row(case, "rules", "series recorded", "", [len(prometheus.series('{__name__=~"eyas:.*"}'))])
    for name, own in seconds.items():
        yield Row(case, f"group {name}", "one evaluation", "s", own, note=f"every {every[name]:g} s")
    yield Row(case, "all groups", "of their intervals", "%", [100 * busy])
    yield Row(case, "Prometheus", "processor, of one core", "%", [share])
    yield Row(case, "Prometheus", "resident memory", "MiB", [process.memory_info().rss / 2**20])


if __name__ == "__main__":
    alerting_cost()
