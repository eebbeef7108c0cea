"""The cost of storing and reading users' values: the feature store in SQLite, PostgreSQL and Redis, by the number of users of a call.

python -m benchmarks.featurestore [--users 160000]

At the end a control plane loads what a version was published with into Redis: rows a second, and the memory that it takes on top.
Each user has eight numbers, four words and a list of ten codes, in two views (a version's own, and values written by hand of one in ten).
The feeding of a version is what a gateway adds: the merge of both and the columns. Servers are processes of this machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

from benchmarks.harness import Row, benchmark, databases, latencies, scratch, timed
from services.control.feature_materialiser import FeatureMaterialiser
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.redis import RedisFeatureStore
from services.featurestore.sql import SqlFeatureStore
from services.store.engine import open_engine
from shared.artifacts import FsspecArtifacts
from shared.contracts.online import ONLINE, Online, OnlineColumn, View
from shared.contracts.serving import Serve
from shared.domain.feature_values import StoredRow, instant
from shared.domain.forgetting import UserDigest
from shared.ports import FeatureHistory, FeatureStore
from shared.serving.values_file import ValueRows, write_values
from tests.servers.redis_server import RedisServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TTL = timedelta(days=30)
CALLS, AT_ONCE = 400, 5_000
TOGETHER = (1, 16, 64)


def rows(users: range, at: datetime) -> list[StoredRow]:
    chance = np.random.default_rng(users.start)
    numbers = chance.random((len(users), 8)).astype(np.float32).astype(float)
    codes = chance.integers(0, 10_000, (len(users), 10))
    return [
        StoredRow(
            user,
            at,
            {f"number_{n}": value for n, value in enumerate(mine.tolist())}
            | {f"word_{n}": f"value-{(user + n) % 100}" for n in range(4)}
            | {"last": tuple(listed.tolist())},
        )
        for user, mine, listed in zip(users, numbers, codes, strict=True)
    ]


def written(store: FeatureStore, users: int) -> tuple[float, float]:
    """Rows a second, of a first load and of the same again."""
    batches = [rows(range(start, min(start + AT_ONCE, users)), NOW) for start in range(0, users, AT_ONCE)]
    rates = [users / timed(lambda: [store.write("bench", "users@1", batch) for batch in batches])[0] for _ in range(2)]
    for batch in batches:
        store.write("bench", "users", [StoredRow(row.key, NOW, {"number_0": 1.0}) for row in batch[::10]])
    return rates[0], rates[1]


def read(store: FeatureStore, users: int, together: int) -> list[float]:
    """Seconds of each call."""
    chance = np.random.default_rng(7)
    seconds = []
    for _ in range(CALLS):
        keys = chance.integers(0, users, together).tolist()
        took, values = timed(lambda keys=keys: store.read("bench", {"users": TTL, "users@1": TTL}, keys, NOW))  # type: ignore[misc]
        seconds.append(took)
        assert len({key for _, key in values.rows}) == len(set(keys))
    return seconds


def measured(name: str, store: FeatureStore, users: int) -> Iterator[Row]:
    first, again = written(store, users)
    yield Row("load", name, "rows written, alone", "rows/s", [first])
    yield Row("load", name, "rows written again", "rows/s", [again])
    for together in TOGETHER:
        read(store, users, together)
        yield from latencies(f"{together} users at once", name, read(store, users, together), 50, 99, metric="a read, {}")


def published(folder: Path, users: int) -> dict[str, Path]:
    """The files of a version, as export writes them."""
    chance = np.random.default_rng(9)
    columns = tuple(OnlineColumn(name=f"number_{n}", dtype="float32") for n in range(8))
    columns += (OnlineColumn(name="last", dtype="int64", width=10),)
    arrays = {f"number_{n}": chance.random(users).astype(np.float32) for n in range(8)} | {"last": chance.integers(0, 10_000, (users, 10))}
    values = ValueRows(np.arange(users), np.full(users, instant(NOW)), arrays)
    view, files = write_values(View(name="users", columns=columns), values, lambda name: folder / name)
    files[ONLINE] = folder / ONLINE
    files[ONLINE].write_text(Online(views=(view,)).model_dump_json())
    return files


def materialised(store: FeatureStore, history: FeatureHistory, folder: Path, users: int) -> Iterator[Row]:
    artifacts = FsspecArtifacts(str(folder / "artifacts"))
    files = {name: artifacts.put(path) for name, path in published(folder, users).items()}
    registry = SimpleNamespace(get=lambda *_: SimpleNamespace(files=files))
    spec = SimpleNamespace(serve=Serve())
    recommenders = SimpleNamespace(get=lambda _: SimpleNamespace(spec=spec), heads=lambda: {"bench": 1})
    clock = SimpleNamespace(now=lambda: NOW)
    nobody = SimpleNamespace(all=lambda _: (), digest=UserDigest(b""))
    stores: Any = (registry, artifacts, recommenders, (store, history), clock, nobody)
    made = FeatureMaterialiser(lambda: {"bench": frozenset({2})}, *stores)
    process = psutil.Process()
    before = most = process.memory_info().rss
    began = time.perf_counter()
    while not made.loaded("bench", 2):
        made.step()
        most = max(most, process.memory_info().rss)
    yield Row("a version's values loaded", "Redis", "rows", "rows/s", [users / (time.perf_counter() - began)])
    yield Row("a version's values loaded", "Redis", "memory on top", "MiB", [(most - before) / (1 << 20)])


@benchmark("featurestore")
def featurestore(users: int = 160_000) -> Iterator[Row]:
    with ExitStack() as undo:
        folder, new_database = undo.enter_context(scratch()), undo.enter_context(databases(durable=False))
        for name in ("SQLite", "PostgreSQL"):
            engine = open_engine(new_database(name, migrated=True))
            yield from measured(name, SqlFeatureStore(engine), users)
            engine.dispose()
        server = RedisServer(folder / "redis")
        server.start()
        undo.callback(server.kill)
        store = RedisFeatureStore(server.url)
        undo.callback(store.close)
        yield from measured("Redis", store, users)
        engine = open_engine(new_database("SQLite", migrated=True))
        undo.callback(engine.dispose)
        yield from materialised(store, SqlFeatureHistory(engine), folder, users)


if __name__ == "__main__":
    featurestore()
