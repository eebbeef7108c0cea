"""What the rules cost a Prometheus: series and seconds, by how many recommenders there are.

Every metric of `shared.telemetry` is exported for each of them, by the platform's own library, with a few values of every other label; what
answers count goes up meanwhile. A real Prometheus scrapes it and works the chart's rules as they are. `--days` gives it a past of what the
budgets' long windows read, a sample a minute, by promtool.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from benchmarks.report import Row, publish
from shared.telemetry import metrics
from tests.servers.alerting import Prometheus
from tests.servers.platform_process import until
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
PAST = ("requests", "errors", "answers", "slow")
RATES = {"requests": 10.0, "errors": 0.002, "answers": 10.0, "slow": 0.02}
EVALUATION = 30


def export(recommenders: int) -> Iterator[Any]:
    """Makes the series; yields those of answers, which are to grow."""
    names = [f"recommender-{number:05d}" for number in range(recommenders)]
    for metric in vars(metrics).values():
        if not isinstance(metric, Counter | Gauge | Histogram) or "recommender" not in metric._labelnames:
            continue
        others = [VALUES.get(label, ("x",)) for label in metric._labelnames if label != "recommender"]
        for name, more in itertools.product(names, itertools.product(*others)):
            given = iter(more)
            made = metric.labels(*(name if label == "recommender" else next(given) for label in metric._labelnames))
            if metric in (metrics.REQUESTS, metrics.REQUEST_SECONDS) and "error" not in more:
                yield made


def served() -> ThreadingHTTPServer:
    """Written once but for what grows: the library takes longer to write so many than Prometheus waits."""
    names = [f"{one}{suffix}" for one in GROWING for suffix in ("_total", "_bucket", "_count", "_sum")]
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
        for one in series:
            one.observe(0.01) if hasattr(one, "observe") else one.inc()


def past(folder: Path, recommenders: int, days: int) -> None:
    """Blocks of what was recorded until a moment ago."""
    now = int(time.time()) // 60 * 60
    text = folder / "past.txt"
    with text.open("w") as stream:
        for what in PAST:
            stream.write(f"# TYPE eyas:recommend_{what}:rate5m gauge\n")
            for number in range(recommenders):
                head = f'eyas:recommend_{what}:rate5m{{recommender="recommender-{number:05d}"}} {RATES[what]} '
                stream.writelines(f"{head}{at}\n" for at in range(now - days * 86400, now, 60))
        stream.write("# EOF\n")
    made = [program("prometheus", "promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True)  # noqa: S603
    text.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recommenders", type=int, default=1000)
    parser.add_argument("--days", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5, help="evaluations that are waited for")
    given = parser.parse_args()
    over = threading.Event()
    growing = list(export(given.recommenders))
    page = served()
    threading.Thread(target=grow, args=(growing, over), daemon=True).start()
    threading.Thread(target=page.serve_forever, daemon=True).start()
    every = f"{EVALUATION}s"
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as place:
        folder = Path(place) / "prometheus"
        folder.mkdir()
        if given.days:
            past(folder, given.recommenders, given.days)
        with Prometheus(folder, [f"http://127.0.0.1:{page.server_port}"], scrape=every, evaluation=every) as prometheus:
            rows = _measured(prometheus, given.rounds, f"{given.recommenders:,} recommenders, {given.days} days before")
    over.set()
    publish(f"alerting-cost-{given.recommenders}-{given.days}", rows)
    return 0


def _measured(prometheus: Prometheus, rounds: int, case: str) -> list[Row]:
    until(
        "a rate",
        lambda: prometheus.series("eyas_recommend_requests_total offset 1m") and prometheus.series("eyas:recommend_requests:rate5m"),
        600,
    )
    process = psutil.Process(prometheus.pid)
    began, used = time.monotonic(), sum(process.cpu_times()[:2])
    seconds: dict[str, list[float]] = {}
    seen: set[tuple[str, str]] = set()

    def looked() -> bool:
        for group in prometheus.groups():
            key = (group["name"], group["lastEvaluation"])
            if group["evaluationTime"] and key not in seen:
                seen.add(key)
                seconds.setdefault(group["name"], []).append(group["evaluationTime"])
        return len(seconds) == len(prometheus.groups()) and min(map(len, seconds.values())) >= rounds

    until("rounds enough", looked, rounds * EVALUATION * 16)
    every = {group["name"]: float(group["interval"]) for group in prometheus.groups()}
    busy = sum(statistics.median(found) / every[name] for name, found in seconds.items())
    share = 100 * (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began)
    (scraped,) = (value for _, value in prometheus.samples("scrape_samples_scraped", "2m")[-1:])
    recorded = len(prometheus.series('{__name__=~"eyas:.*"}'))
    rows = [Row(case, f"group {name}", "one evaluation", "s", found, note=f"every {every[name]:g} s") for name, found in seconds.items()]
    return [
        Row(case, "the platform", "series scraped", "", [scraped]),
        Row(case, "rules", "series recorded", "", [recorded]),
        *rows,
        Row(case, "all groups", "of their intervals", "%", [100 * busy]),
        Row(case, "Prometheus", "processor, of one core", "%", [share]),
        Row(case, "Prometheus", "resident memory", "MiB", [process.memory_info().rss / 2**20]),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
