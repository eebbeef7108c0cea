"""Sizing of a load: replicas, cores, memory and disk, by measured unit costs. Arithmetic: nothing is measured here.

    python -m benchmarks.sizing --users 10e6 --items 1e6 --requests 2000 [--recommenders 10] [--actions 0.2] [--days 30] [--trainings 1]
    python -m benchmarks.sizing --documented     the loads of docs/benchmarks/scaling.md

docs/benchmarks/scaling.md names the unit costs and the totals.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from benchmarks.harness import read_options
from shared.domain.errors import Invalid

GIB = 2.0**30
BUSY = 0.6
"""How much of a core is planned with."""
GATEWAY_MS = ((60e3, 0.99), (250e3, 2.96), (1e6, 5.63))
"""CPU of a request outside scoring, by items, 32 at once."""
TRITON_MS = 1.83
"""CPU of scoring its 500 candidates, by a small model on a CPU."""
PER_PROCESS = 2.0
"""Cores that one gateway process fills: its Python holds one, NumPy and the index the other."""
GATEWAY_MIB = 130.0
ITEM_BYTES, USER_BYTES = 440.0, 144.0
"""Of a version in a gateway, vectors of 32 numbers."""
VERSIONS = 2
"""That a gateway and a Triton hold while a rollout is under way."""
TRITON_MIB = 230.0
ROW_BYTES = 128.0
"""Of a user's or an item's row in a served unit: 32 numbers."""
ANSWER_BYTES, EVENT_BYTES, VALUE_BYTES = 640.0, 550.0, 300.0
"""On PostgreSQL's disk with indexes: an answer of ten items, what a user did, a user's row of six values."""
COMPACT_ANSWER, COMPACT_EVENT = 6.4, 6.8
"""The same in Parquet by day."""
EVENT_US = 76.0
EMBEDDED, JOINER = 5_200.0, 4_470.0
"""Events a second that SQLite takes, and that one control plane joins out of a stream."""
ETL_ROWS, ETL_CORES, ETL_MIB, ETL_BYTES = 1_088_000.0, 2, 424.0, 19.1
"""Rows a second, and memory as it grows with rows."""
TRAIN_ROWS, TRAIN_CORES, EPOCHS = 334_000.0, 2, 5
INDEX_S = 20.0e-6
"""An item."""
KPI_US, LOOKS = 1.1, 0.5
"""CPU of an answer in the window of five minutes, and looks a second."""
SERIES, SERIES_BYTES = 110.0, 3_500.0
"""Of a recommender that is asked: one that isn't has four."""
MOST_GIB, MOST_EVENTS = 64.0, 40_000.0
"""Of one machine, and of one database: beyond, the answer of this script is that it doesn't fit."""


@dataclass(frozen=True)
class Load:
    users: float
    items: float
    requests: float
    """A second, at the peak."""
    recommenders: float = 1
    actions: float = 0.2
    """Of a user, for each answer."""
    days: float = 30
    """That events stay in the database; older ones lie in Parquet."""
    trainings: float = 1
    """A day, of each recommender."""
    peak: float = 3.0
    """The peak, as so many times the mean of a day."""

    @property
    def answers_a_day(self) -> float:
        return self.requests / self.peak * 86_400


@dataclass(frozen=True)
class Part:
    name: str
    engine: str
    replicas: int
    cores: float
    gib: float
    """Of each replica."""
    disk: float = 0
    """GiB a day that it grows."""
    month: float = 0
    """GiB that it holds after 30 days."""


def fleet(load: Load) -> tuple[Part, ...]:
    return (_gateway(load), _triton(load), _database(load), _features(load), _objects(load), _etl(load), _training(load), _control(load))


def beyond(load: Load) -> list[str]:
    """Parts that no implementation can hold."""
    faults = [f"{part.name}: {part.gib:,.0f} GiB in one process, and it isn't divided" for part in fleet(load) if part.gib > MOST_GIB]
    events = load.requests * (1 + load.actions)
    if events > MOST_EVENTS:
        faults.append(f"database: {events:,.0f} rows a second into one PostgreSQL")
    return faults


def many(load: Load) -> bool:
    """Whether it is more than one machine with one process."""
    return load.requests > 150 or load.users > 1e6


def _gateway(load: Load) -> Part:
    cores = load.requests * _by_items(load.items) / 1000 / BUSY
    replicas = max(math.ceil(cores / PER_PROCESS), 2 if many(load) else 1)
    version = load.items * ITEM_BYTES + load.users * USER_BYTES
    index = "exact" if load.items < 100_000 else "quantised index"
    memory = GATEWAY_MIB / 1024 + load.recommenders * VERSIONS * version / GIB
    return Part("gateway", index, replicas, max(cores / replicas, 0.1), memory)


def _triton(load: Load) -> Part:
    cores = load.requests * TRITON_MS / 1000 / BUSY
    replicas = max(math.ceil(cores / 8), 2 if many(load) else 1)
    weights = load.recommenders * VERSIONS * (load.users + load.items) * ROW_BYTES
    return Part("Triton", "ONNX Runtime, CPU", replicas, max(cores / replicas, 0.1), TRITON_MIB / 1024 + weights / GIB)


def _database(load: Load) -> Part:
    events = load.requests * (1 + load.actions)
    looked = load.requests / load.peak * 300 * KPI_US * LOOKS / 1e6
    cores = max((events * EVENT_US / 1e6 + looked) / BUSY, 0.1)
    day = load.answers_a_day * (ANSWER_BYTES + load.actions * EVENT_BYTES) / GIB
    engine = "SQLite" if not many(load) else "PostgreSQL" if events < 0.6 * EMBEDDED else "PostgreSQL behind NATS JetStream"
    return Part("events and state", engine, 1, cores, max(1.0, day * 0.1 if many(load) else 1.0), day, day * load.days)


def _features(load: Load) -> Part:
    size = load.recommenders * VERSIONS * load.users * VALUE_BYTES / GIB
    if not many(load):
        return Part("feature store", "in the database", 0, 0, 0, 0, size)
    return Part("feature store", "Redis", max(1, math.ceil(size / MOST_GIB)), 1, min(size, MOST_GIB), 0, size)


def _objects(load: Load) -> Part:
    day = load.answers_a_day * (COMPACT_ANSWER + load.actions * COMPACT_EVENT) / GIB
    version = (load.users + load.items) * (ROW_BYTES * 2 + 8) / GIB
    made = load.recommenders * load.trainings * version
    stored = min(load.trainings * 30, 10 + load.trainings) * load.recommenders * version  # EYAS_KEEP_VERSIONS
    engine = "a folder" if not many(load) else "S3"
    return Part("artifacts", engine, 0, 0, 0, day + made, day * 30 + stored)


def _etl(load: Load) -> Part:
    """A full run over the days that the database holds, one recommender after the other."""
    rows = load.answers_a_day * load.actions * load.days / load.recommenders
    seconds = rows / ETL_ROWS * load.trainings * load.recommenders
    at_once = max(1, math.ceil(seconds / 86_400 / BUSY))
    return Part("etl", f"polars, {_time(rows / ETL_ROWS)} each", at_once, ETL_CORES, (ETL_MIB + rows * ETL_BYTES / 2**20) / 1024)


def _training(load: Load) -> Part:
    rows = load.answers_a_day * load.actions * load.days / load.recommenders
    each = rows * EPOCHS * 5 / TRAIN_ROWS + load.items * INDEX_S  # four negatives beside each
    at_once = max(1, math.ceil(each * load.trainings * load.recommenders / 86_400 / BUSY))
    weights = 3 * (load.users + load.items) * ROW_BYTES / GIB  # with Adam's two moments
    ranks = max(1, math.ceil(weights / MOST_GIB))
    return Part(
        "training", f"{ranks} rank{'s' if ranks > 1 else ''}, {_time(each)} each", at_once * ranks, TRAIN_CORES, 1 + weights / ranks
    )


def _control(load: Load) -> Part:
    series = load.recommenders * SERIES
    joiners = max(1, math.ceil(load.requests * (1 + load.actions) / JOINER / BUSY)) if many(load) else 1
    replicas = 2 if many(load) else 1
    cores = max(joiners / replicas, 0.2) if many(load) and load.requests * (1 + load.actions) >= 0.6 * EMBEDDED else 0.2
    return Part("control plane, monitor", f"{series:,.0f} series of metrics", replicas, cores, 0.3 + series * SERIES_BYTES / GIB)


def _by_items(items: float) -> float:
    """Between measured points, and beyond them, along straight lines of logarithms."""
    low, high = GATEWAY_MS[:2] if items <= GATEWAY_MS[1][0] else GATEWAY_MS[1:]
    if items <= low[0] and low is GATEWAY_MS[0]:
        return low[1]
    slope = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    return float(low[1] * (items / low[0]) ** slope)


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.0f} h"


def table(loads: Sequence[tuple[str, Load]]) -> str:
    """In Markdown."""
    lines = [
        "| load | part | by | replicas | cores, each | GiB, each | GiB a day | GiB after a month |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, load in loads:
        parts = fleet(load)
        for part in parts:
            numbers = [_number(value) for value in (part.cores, part.gib, part.disk, part.month)]
            replicas = f"{part.replicas:,}" if part.replicas else ""
            lines.append(f"| {name} | {part.name} | {part.engine} | " + " | ".join([replicas, *numbers]) + " |")
        cores = sum(part.replicas * part.cores for part in parts)
        memory = sum(part.replicas * part.gib for part in parts)
        disk, month = sum(part.disk for part in parts), sum(part.month for part in parts)
        lines.append(
            f"| {name} | **all** | | | **{_number(cores)}** | **{_number(memory)}** | **{_number(disk)}** | **{_number(month)}** |"
        )
        lines += [f"| {name} | **doesn't fit** | {fault} | | | | | |" for fault in beyond(load)]
    return "\n".join(lines)


def _number(value: float) -> str:
    return "" if value == 0 else f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2g}"


DOCUMENTED: tuple[tuple[str, Load], ...] = (
    ("10 thousand users", Load(users=10e3, items=5e3, requests=5)),
    ("10 million users", Load(users=10e6, items=1e6, requests=2_000, recommenders=3)),
    ("1 billion users (arithmetic)", Load(users=1e9, items=10e6, requests=100_000, recommenders=3)),
)


LEAST = {"users": 1.0, "items": 1.0, "requests": 0.0, "recommenders": 1.0, "actions": 0.0, "days": 1.0, "trainings": 0.0, "peak": 1.0}


def check(load: Load) -> Load:
    """Raises Invalid, in one line, for an impossible load."""
    for name, value in asdict(load).items():
        if not math.isfinite(value) or value < LEAST[name] or value > 1e12:
            raise Invalid(f"--{name}: a number from {LEAST[name]:g} to 1e12 is expected, got {value:g}")
    if load.recommenders != int(load.recommenders):
        raise Invalid(f"--recommenders: a whole number is expected, got {load.recommenders:g}")
    return load


def sizing(  # noqa: PLR0913, PLR0917  one per field of a load
    documented: Annotated[bool, "the loads of docs/benchmarks/scaling.md"] = False,
    users: Annotated[float, "of each recommender"] = 10e3,
    items: Annotated[float, "of each recommender"] = 5e3,
    requests: Annotated[float, "answers a second at the peak, of all recommenders"] = 5.0,
    recommenders: Annotated[float, "how many there are"] = 1.0,
    actions: Annotated[float, "of a user for each answer"] = 0.2,
    days: Annotated[float, "that events stay in the database and are learned from"] = 30.0,
    trainings: Annotated[float, "a day, of each recommender"] = 1.0,
    peak: Annotated[float, "the peak over the mean of a day"] = 3.0,
) -> str:
    load = Load(users, items, requests, recommenders, actions, days, trainings, peak)
    return table(DOCUMENTED if documented else (("asked for", check(load)),))


def main(words: Sequence[str] | None = None) -> int:
    options = read_options(sizing, words)
    try:
        sys.stdout.write(sizing(**options) + "\n")
    except Invalid as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
