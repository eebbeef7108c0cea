"""The control plane and one gateway with many idle recommenders that serve: what each costs, and what slows down.

    python -m benchmarks.many [--counts 10 100 1000 10000] [--databases sqlite postgresql] [--active 10] [--idle 30] [--patience 600]

A real platform process on a filled database; a fake model server and stages that end at once stand behind their ports. Of each count:
seconds to ready and until the last one answers, the API's answers, `apply` and until its run has started, until a change of one route has
reached the gateway, the scrape, memory, and, left alone, cores, and of a pass of each loop seconds and statements to the database.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx

from benchmarks.harness import Row, benchmark, cpu_seconds, percentiles, say, scratch, timed
from benchmarks.harness import databases as empty_databases
from benchmarks.many_platform import COUNTS, HELD
from benchmarks.many_world import fill, name_of, specified
from benchmarks.platforms import FAKE, Running, running
from shared.artifacts import FsspecArtifacts

_REQUESTS = 100
_APPLIED = 8
_PATIENCE = 600.0
_PASSES = 2
"""Of each loop, after which the work of the first passes alone is over."""
_NONE = (0.0, 0.0, 0.0)
LOOPS = {
    "control": "control loop",
    "gateway": "gateway's loop",
    "monitor": "monitor's loop",
    "runs": "runs' loop",
    "retrainers": "retrainers' loop",
    "features": "features' loop",
    "compactor": "compactor's loop",
}
_SETTINGS = {"EYAS_MAX_RUNS": "100", "EYAS_CONTROL_RATE": "0"}


@benchmark("many")
def many(
    counts: Sequence[int] = (10, 100, 1_000, 10_000),
    databases: Sequence[Literal["sqlite", "postgresql"]] = ("sqlite", "postgresql"),
    active: Annotated[int, "runs whose stage goes on meanwhile"] = 10,
    idle: Annotated[float, "seconds that it is watched, left alone"] = 30,
    patience: Annotated[float, "seconds that a start is waited for"] = _PATIENCE,
) -> Iterator[Row]:
    with empty_databases() as new_database:
        for database, count in itertools.product(databases, counts):
            say(f"{database}: {count:,} recommenders")
            with scratch() as folder:
                table = Table(f"{count} recommenders", f"eyas on {database}")
                yield from _measure(table, new_database(database), folder, count, active, idle, patience)


@dataclass
class Table:
    case: str
    contender: str

    def row(self, metric: str, unit: str, *values: float) -> Row:
        return Row(self.case, self.contender, metric, unit, values)


def _measure(table: Table, url: str, folder: Path, count: int, active: int, idle: float, patience: float) -> Iterator[Row]:
    home, data = folder / "home", folder / "data"
    fill(url, FsspecArtifacts(str(home / "artifacts")), count)
    data.mkdir()
    for name in ("ratings.csv", "movies.csv"):
        (data / name).write_text("user,item,stars,at\n")
    with running(home, FAKE, _SETTINGS | {"EYAS_DATABASE_URL": url, "EYAS_DATA_ROOTS": str(data)}) as platform:
        client = platform.client
        yield table.row("until it listens", "s", time.monotonic() - platform.began)
        _await(platform.is_ready, patience)
        yield table.row("until the gateway is ready", "s", time.monotonic() - platform.began)
        last = name_of(count - 1)
        _await(lambda: client.post(f"/v1/recommend/{last}", json={"user": 1}).status_code == 200, patience)
        yield table.row("until the last recommender answers", "s", time.monotonic() - platform.began)
        for number in range(active):
            _apply(client, f"{HELD}{number:03}")
        _await(lambda: _is_settled(home), patience)
        yield from _at_rest(table, platform, idle)
        yield from _requests(table, client, count)
        yield from _applied(table, client)
        yield from _scrape(table, platform.metrics_url)
        yield table.row("resident memory", "MiB", platform.resident_memory())


def _is_settled(home: Path) -> bool:
    passes = [times for name, (times, *_) in _counts(home)["steps"].items() if name.partition("/")[0] in LOOPS]
    return min(passes, default=0) >= _PASSES


def _at_rest(table: Table, platform: Running, seconds: float) -> Iterator[Row]:
    before, cpu = _counts(platform.home), cpu_seconds([platform.process])
    time.sleep(seconds)
    after, now = _counts(platform.home), cpu_seconds([platform.process])
    passed = after["at"] - before["at"]
    yield table.row("at rest: cores", "", (now - cpu) / seconds)
    sent = {name: total - before["statements"].get(name, 0) for name, total in after["statements"].items()}
    yield table.row("at rest: statements to the database", "1/s", sum(sent.values()) / passed)
    for name, loop in LOOPS.items():
        means = _pass(before["steps"], after["steps"], sent, name, passed)
        for (metric, unit), value in zip((("clock", "s"), ("CPU", "s"), ("statements", "")), means, strict=True):
            yield table.row(f"a pass of the {loop}: {metric}", unit, value)


def _pass(
    before: Mapping[str, list[float]], after: Mapping[str, list[float]], sent: Mapping[str, float], loop: str, passed: float
) -> tuple[float, float, float]:
    """Means of the steps that ended meanwhile; a step that never ended took the whole time, at least."""
    clock = cpu = statements = 0.0
    for name in {*after, *sent}:
        if name.partition("/")[0] == loop:
            times, seconds, busy = (now - then for now, then in zip(after.get(name, _NONE), before.get(name, _NONE), strict=True))
            clock += seconds / times if times else passed
            cpu += busy / times if times else 0.0
            statements += sent.get(name, 0) / (times or 1)
    return clock, cpu, statements


def _requests(table: Table, client: httpx.Client, count: int) -> Iterator[Row]:
    chance = random.Random(1)  # noqa: S311
    some = [name_of(chance.randrange(count)) for _ in range(_REQUESTS)]
    requests: Mapping[str, Sequence[tuple[str, str, Any]]] = {
        "list, 50 of them": [("GET", "/v1/recommenders", None)] * (_REQUESTS // 5),
        "get": [("GET", f"/v1/recommenders/{name}", None) for name in some],
        "recommend": [("POST", f"/v1/recommend/{name}", {"user": 1}) for name in some],
    }
    for kind, own in requests.items():
        answers = [timed(lambda request=request: client.request(request[0], request[1], json=request[2])) for request in own]  # type: ignore[misc]
        for _, answer in answers:
            answer.raise_for_status()
        for name, value in percentiles([seconds for seconds, _ in answers], 50, 99, scale=1000).items():
            yield table.row(f"{kind}, {name}", "ms", value)


def _applied(table: Table, client: httpx.Client) -> Iterator[Row]:
    """New recommenders, one after the other; the runs that go on leave room for them."""
    applied, started, served = [], [], []
    for number in range(_APPLIED):
        began = time.monotonic()
        run = _apply(client, f"new-{number:03}")
        applied.append(time.monotonic() - began)
        _await(lambda run=run: client.get(f"/v1/runs/{run}").json()["state"] != "pending")  # type: ignore[misc]
        started.append(time.monotonic() - began)
    for name in map(name_of, range(_APPLIED)):
        began = time.monotonic()
        other = 3 - client.get(f"/v1/recommenders/{name}").json()["serving"]["stable"]
        client.post(f"/v1/recommenders/{name}:rollback", json={"to": other}).raise_for_status()
        _await(lambda name=name, other=other: _version(client, name) == other)  # type: ignore[misc]
        served.append(time.monotonic() - began)
    yield table.row("apply", "s", *applied)
    yield table.row("from apply until its run has started", "s", *started)
    yield table.row("from going back until the gateway answers by it", "s", *served)


def _apply(client: httpx.Client, name: str) -> str:
    response = client.post("/v1/recommenders", json=specified(name).document())
    return str(response.raise_for_status().json()["run"])


def _version(client: httpx.Client, name: str) -> int:
    return int(client.post(f"/v1/recommend/{name}", json={"user": 1}).json()["version"])


def _scrape(table: Table, url: str) -> Iterator[Row]:
    scrapes = [timed(lambda: httpx.get(url, timeout=120).content) for _ in range(5)]
    yield table.row("scrape", "s", *(seconds for seconds, _ in scrapes))
    yield table.row("scrape", "MiB", len(scrapes[-1][1]) / 2**20)
    yield table.row("scrape", "series", sum(not line.startswith(b"#") for line in scrapes[-1][1].splitlines()))


def _await(probe: Callable[[], bool], patience: float = _PATIENCE) -> None:
    """Waits no longer than `patience`: the figure is then a lower bound."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with suppress(httpx.HTTPError):
            if probe():
                return
        time.sleep(0.02)
    say(f"not so within {patience:g} s")


def _counts(home: Path) -> Any:
    return json.loads((home / COUNTS).read_text())


if __name__ == "__main__":
    many()
