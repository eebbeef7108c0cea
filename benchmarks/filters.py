"""The cost of filters, the memory of a catalogue, and how soon a change shows.

    python -m benchmarks.filters [--items 60000] [--tries 100]

Filtering and memory: in this process, of a catalogue with ten attributes an item. Upserts: through the store, a request's worth at a
time. Freshness: a platform as a process over HTTP (its Triton and stages are fakes), an item made available and unavailable in turn beside
that whole catalogue: from the answer to the upsert until a recommendation shows it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import httpx
import numpy as np
import psutil

from benchmarks.harness import Row, benchmark, databases, percentiles, scratch, seconds_of, timed, until
from services.gateway.attributes import AttributeBuilder, Attributes
from services.gateway.filtering import Filter, FilterInput
from services.gateway.loaded_version import LoadedVersion
from services.store.catalogue import SqlCatalogue
from services.store.engine import open_engine
from services.store.migrate import upgrade
from shared.contracts.serving import Serve
from shared.domain.attributes import Value
from shared.domain.catalogue import ItemWrite
from shared.ports import CatalogueItem
from tests.security.platform import NAME, TOKEN

FILTER = ("age_rating <= user.age", "user.region in regions", "price < 40 and not genres contains 'Horror'")
CONTEXT: Mapping[str, Value] = {"age": 14, "region": "de"}
PIECE = 5_000
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
        CatalogueItem(write.item, {k: v for k, v in write.attributes.items() if v is not None}, write.available is not False)
        for write in writes
    ]
    process = psutil.Process()
    before, began = process.memory_info().rss, time.perf_counter()
    builder = AttributeBuilder()
    for start in range(0, len(items), 2_000):
        builder.take(items[start : start + 2_000])
    return builder.state, process.memory_info().rss - before, time.perf_counter() - began


def unit_of(count: int) -> LoadedVersion:
    keys = np.random.default_rng(3).permutation(count).astype(np.int64)
    order = np.argsort(keys)
    return LoadedVersion(
        version=1,
        user_input="user",
        item_input="item",
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
        milliseconds = [1e3 * seconds for seconds in seconds_of(partial(chosen.keep, unit, some, filter_input), 200)]
        case = f"{rows} rows, 3 expressions, {kept_rows.mean():.0%} kept"
        yield Row(case, "eyas", "time", "ms", milliseconds)
        yield Row(case, "eyas", "p99", "ms", [percentiles(milliseconds, 99)["p99"]])


def upserts(kind: str, url: str, writes: Sequence[ItemWrite]) -> Iterator[Row]:
    engine = open_engine(url)
    upgrade(engine)
    store = SqlCatalogue(engine)
    changed = [ItemWrite(write.item, {**write.attributes, "price": 1}, write.available) for write in writes]
    for case, some, whole in (("new", writes, True), ("the same again", writes, True), ("one attribute changed", changed, False)):
        pieces = [some[start : start + PIECE] for start in range(0, len(some), PIECE)]
        seconds, _ = timed(lambda pieces=pieces, whole=whole: [store.put("bench", piece, _NOW, whole) for piece in pieces])  # type: ignore[misc]
        yield Row(f"{len(some)} items, {case}", f"eyas {kind}", "upserted", "items/s", [len(some) / seconds])
    began, since, builder = time.perf_counter(), 0, AttributeBuilder()
    while changes := store.changes("bench", since, 2_000):
        builder.take(changes)
        since = changes[-1].revision
    yield Row(f"{len(writes)} items", f"eyas {kind}", "read anew into columns", "s", [time.perf_counter() - began])
    engine.dispose()


def freshness(writes: Sequence[ItemWrite], tries: int) -> Iterator[Row]:
    with scratch() as folder:
        home = folder / "platform"
        command = [sys.executable, "-m", "tests.security.platform", "--home", str(home)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603

        def url() -> str:
            if process.poll() is not None:
                raise SystemExit("the platform ended before it was ready")
            return (home / "url").read_text() if (home / "url").exists() else ""

        try:
            with httpx.Client(base_url=until("a platform", url), headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as http:
                until("an answer", lambda: http.post(f"/v1/recommend/{NAME}", json={"user": 1}).status_code == 200)
                yield from _fresh(http, writes, tries)
        finally:
            process.terminate()
            process.wait(30)


def _fresh(http: httpx.Client, writes: Sequence[ItemWrite], tries: int) -> Iterator[Row]:
    began = time.perf_counter()
    for start in range(0, len(writes), 2_000):  # of a MiB at most
        lines = "\n".join(
            json.dumps({"item": 1_000 + write.item, "attributes": write.attributes}) for write in writes[start : start + 2_000]
        )
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
    return {item["item"] for item in answer["items"]}


@benchmark("filters")
def filters(items: int = 60_000, tries: int = 100) -> Iterator[Row]:
    writes = catalogue(items)
    state, resident, seconds = ledger(writes)
    case = f"{items} items x 10 attributes"
    yield Row(case, "eyas", "columns", "MiB", [state.size / 2**20])
    yield Row(case, "eyas", "resident, texts and keys included", "MiB", [resident / 2**20])
    yield Row(case, "eyas", "columns made", "s", [seconds])
    yield from filtering(state, items)
    with databases() as new_database:
        for kind in ("sqlite", "postgresql"):
            yield from upserts(kind, new_database(kind), writes)
    yield from freshness(writes, tries)


if __name__ == "__main__":
    filters()
