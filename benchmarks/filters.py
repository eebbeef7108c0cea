"""What filters cost, what a catalogue takes, and how soon a change shows.

    python -m benchmarks.filters [--items 60000] [--tries 100]

Filtering and memory: in this process, of a catalogue with ten attributes an item. Upserts: through the store, a request's worth at a
time. Freshness: a platform as a process over HTTP (its Triton and stages are fakes), an item made available and unavailable in turn beside
that whole catalogue: from the answer to the upsert until a recommendation shows it.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.report import Row, publish
from services.gateway.attributes import AttributeBuilder, Attributes
from services.gateway.filtering import Filter, FilterInput
from services.gateway.loaded_version import LoadedVersion
from services.store.catalogue import SqlCatalogue
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from shared.contracts.serving import Serve
from shared.domain.attributes import Value
from shared.domain.catalogue import ItemWrite
from shared.ports import CatalogueItem
from tests.security.platform import NAME, TOKEN
from tests.servers.postgres_server import postgres_server

FILTER = ("age_rating <= user.age", "user.region in regions", "price < 40 and not genres contains 'Horror'")
CONTEXT: Mapping[str, Value] = {"age": 14, "region": "de"}
AT_ONCE = 5_000
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_GENRES = [f"genre-{n}" for n in range(20)] + ["Horror"]
_REGIONS = ["de", "at", "ch", "fr", "nl", "pl", "it", "es"]


def attributes(chance: random.Random, item: int) -> dict[str, Value]:
    """Ten of them: four numbers, three texts, two lists, a truth value."""
    return {
        "age_rating": chance.choice([0, 6, 12, 16, 18]),
        "price": round(chance.uniform(1, 60), 2),
        "year": chance.randrange(1950, 2027),
        "minutes": chance.randrange(60, 200),
        "title": f"The film that has the number {item}",
        "studio": f"studio-{chance.randrange(500)}",
        "language": chance.choice(_REGIONS),
        "genres": tuple(chance.sample(_GENRES, 3)),
        "regions": tuple(chance.sample(_REGIONS, 4)),
        "adult": chance.random() < 0.02,
    }


def catalogue(count: int) -> list[ItemWrite]:
    chance = random.Random(7)  # noqa: S311
    return [ItemWrite(item, attributes(chance, item), chance.random() < 0.95) for item in range(count)]


def ledger(writes: Sequence[ItemWrite]) -> tuple[Attributes, float, float]:
    """The columns, the resident bytes that they took, and the seconds."""
    items = [
        CatalogueItem(one.item, {k: v for k, v in one.attributes.items() if v is not None}, one.available is not False) for one in writes
    ]
    process = psutil.Process()
    before, began = process.memory_info().rss, time.perf_counter()
    book = AttributeBuilder()
    for start in range(0, len(items), 2_000):
        book.take(items[start : start + 2_000])
    return book.state, process.memory_info().rss - before, time.perf_counter() - began


def unit_of(count: int) -> LoadedVersion:
    keys = np.random.default_rng(3).permutation(count).astype(np.int64)
    order = np.argsort(keys)
    return LoadedVersion(
        version=1,
        user_input="user",
        columns={},
        items=keys,
        popular=keys,
        fresh=keys[:0],
        users=keys,
        vectors=None,
        _by_key=order,
        _sorted=keys[order],
    )


def filtering(state: Attributes, count: int) -> Iterator[Row]:
    chance = np.random.default_rng(5)
    unit = unit_of(count)
    chosen = Filter(Serve(filter=FILTER))
    filter_input = FilterInput(state, CONTEXT, frozenset())
    for rows in (500, count):
        some = np.sort(chance.choice(count, rows, replace=False)) if rows < count else unit.every
        kept_rows = chosen.keep(unit, some, filter_input)
        seconds = []
        for _ in range(200):
            began = time.perf_counter()
            chosen.keep(unit, some, filter_input)
            seconds.append((time.perf_counter() - began) * 1e3)
        case = f"{rows} rows, 3 expressions, {kept_rows.mean():.0%} kept"
        yield Row(case, "eyas", "time", "ms", seconds)
        yield Row(case, "eyas", "p99", "ms", [statistics.quantiles(seconds, n=100)[98]])


def upserts(kind: str, url: str, writes: Sequence[ItemWrite]) -> Iterator[Row]:
    engine = open_engine(url)
    upgrade(engine)
    store = SqlCatalogue(engine)
    changed = [ItemWrite(one.item, {**one.attributes, "price": 1}, one.available) for one in writes]
    for case, some, whole in (("new", writes, True), ("the same again", writes, True), ("one attribute changed", changed, False)):
        began = time.perf_counter()
        for start in range(0, len(some), AT_ONCE):
            store.put("bench", some[start : start + AT_ONCE], _NOW, whole)
        yield Row(f"{len(some)} items, {case}", f"eyas {kind}", "upserted", "items/s", [len(some) / (time.perf_counter() - began)])
    began = time.perf_counter()
    since, book = 0, AttributeBuilder()
    while changes := store.changes("bench", since, 2_000):
        book.take(changes)
        since = changes[-1].revision
    yield Row(f"{len(writes)} items", f"eyas {kind}", "read anew into columns", "s", [time.perf_counter() - began])
    engine.dispose()


def freshness(writes: Sequence[ItemWrite], tries: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        home = Path(folder) / "platform"
        command = [sys.executable, "-m", "tests.security.platform", "--home", str(home)]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            url = _ready(process, home / "url")
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
                _serves(http)
                yield from _fresh(http, writes, tries)
        finally:
            process.terminate()
            process.wait(30)


def _fresh(http: httpx.Client, writes: Sequence[ItemWrite], tries: int) -> Iterator[Row]:
    began = time.perf_counter()
    for start in range(0, len(writes), 2_000):  # of a MiB at most
        lines = "\n".join(json.dumps({"item": 1_000 + one.item, "attributes": one.attributes}) for one in writes[start : start + 2_000])
        http.put(f"/v1/items/{NAME}", content=lines, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
    yield Row(f"{len(writes)} items, NDJSON over HTTP", "eyas sqlite", "upserted", "items/s", [len(writes) / (time.perf_counter() - began)])
    seconds: list[float] = []
    for number in range(tries):
        available = number % 2 == 1
        http.post(f"/v1/items/{NAME}", json={"items": [{"item": 10, "available": available}]}).raise_for_status()
        written = time.perf_counter()
        while (10 in _shown(http)) != available:
            time.sleep(0.002)
        seconds.append(time.perf_counter() - written)
    yield Row(f"{tries} tries beside {len(writes)} items", "eyas sqlite", "acknowledged to shown", "s", seconds)


def _shown(http: httpx.Client) -> set[int]:
    answer = http.post(f"/v1/recommend/{NAME}", json={"user": 99, "k": 10}).raise_for_status().json()
    return {one["item"] for one in answer["items"]}


def _ready(process: subprocess.Popen[bytes], place: Path) -> str:
    while not place.exists() or not place.read_text():
        if process.poll() is not None:
            raise SystemExit("the platform ended before it was ready")
        time.sleep(0.05)
    return place.read_text()


def _serves(http: httpx.Client) -> None:
    while http.post(f"/v1/recommend/{NAME}", json={"user": 1}).status_code != 200:
        time.sleep(0.05)


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--items", type=int, default=60_000)
    asked.add_argument("--tries", type=int, default=100)
    given: Any = asked.parse_args()
    writes = catalogue(given.items)
    state, resident, seconds = ledger(writes)
    rows = [
        Row(f"{given.items} items x 10 attributes", "eyas", "columns", "MiB", [state.size / 2**20]),
        Row(f"{given.items} items x 10 attributes", "eyas", "resident, texts and keys included", "MiB", [resident / 2**20]),
        Row(f"{given.items} items x 10 attributes", "eyas", "columns made", "s", [seconds]),
        *filtering(state, given.items),
    ]
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder:
        rows += upserts("sqlite", sqlite_url(Path(folder) / "eyas.db"), writes)
    with postgres_server(durable=True) as server:
        rows += upserts("postgresql", server.new_database(migrated=False), writes)
    rows += freshness(writes, given.tries)
    publish("filters", rows)


if __name__ == "__main__":
    main()
