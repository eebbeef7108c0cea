"""The same recommender with integer and with text ids: metrics, and what text costs.

    python -m benchmarks.text_ids [--rows 1000000] [--hashed 10000000] [--seconds 10] [--rounds 3]

Both are trained and served by one platform from the same rows. Text ids of users are UUIDs, of items SKUs such as `sku-000123`. With
`--hashed`, so many UUIDs are hashed and checked for equal keys.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl

from benchmarks.harness import Figures, Missed, Row, benchmark, cpu_seconds, say, scratch, timed, until
from benchmarks.load import Load, Target, bodies_of, separately
from benchmarks.platforms import UP, Running, running
from pipelines.data.synthetic import World as Tastes
from pipelines.data.synthetic import write_ratings
from shared.domain.entity_ids import IdHash

KINDS = ("integer", "text")
FAMILIES: dict[str, dict[str, Any]] = {
    "ease": {"family": "ease", "params": {"regularisation": 400}},
    "mf": {"family": "mf", "params": {"width": 32}},
}
_NAMESPACE = uuid.UUID(int=33)
_USERS, _ITEMS = 6_000, 2_000
_EVENTS, _BATCH = 20_000, 1_000
_METRICS = ("candidate.hr@10", "candidate.ndcg@10")


@dataclass(frozen=True)
class World:
    """Data of both kinds in a folder. `users` and `items`: the text of each integer."""

    folder: Path
    users: dict[int, str]
    items: dict[int, str]

    def spec(self, name: str, kind: str, model: dict[str, Any]) -> dict[str, Any]:
        files = {part: str(self.folder / f"{part}-{kind}.parquet") for part in ("ratings", "films")}
        return {
            "name": name,
            "data": {"interactions": {"uri": files["ratings"]}, "items": {"uri": files["films"], "key": "movieId"}},
            "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
            "model": model,
            "gates": [{"parity": 1e-3}],
            "split": {"refit": False},
            "serve": {"filter": [{"available": True}], "batch": {"k": 10}},
        }


def write_world(folder: Path, rows: int) -> World:
    tastes = Tastes.create(_USERS, _ITEMS, seed=3)
    write_ratings(tastes.ratings(rows, 1_700_000_000, 1_730_000_000, seed=4), folder / "log.parquet")
    log = pl.read_parquet(folder / "log.parquet")
    users = {user: str(uuid.uuid5(_NAMESPACE, str(user))) for user in log["userId"].unique().sort().to_list()}
    items = {item: f"sku-{item:06}" for item in log["movieId"].unique().sort().to_list()}
    text = log.with_columns(pl.col("userId").replace_strict(users), pl.col("movieId").replace_strict(items))
    for kind, frame in zip(KINDS, (log, text), strict=True):
        frame.write_parquet(folder / f"ratings-{kind}.parquet")
        frame.select("movieId").unique().sort("movieId").write_parquet(folder / f"films-{kind}.parquet")
    return World(folder, users, items)


def _run(platform: Running, world: World, family: str, kind: str, seed: int) -> dict[str, Any]:
    name = f"{family}-{kind}"
    spec = world.spec(name, kind, FAMILIES[family] | {"train": {"seed": seed}})
    platform.client.post("/v1/recommenders", params={"run": "false"}, json=spec).raise_for_status()
    answer = platform.client.post(f"/v1/recommenders/{name}/runs", json={"fresh": True})
    answer.raise_for_status()
    return _ended(platform, answer.json()["id"])


def _ended(platform: Running, run: str) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        view: dict[str, Any] = platform.client.get(f"/v1/runs/{run}").json()
        return view if view["state"] in ("registered", "rejected", "failed", "cancelled") else None

    view = until(f"run {run} has ended", probe, 3600, 0.2)
    if view["state"] != "registered":
        raise SystemExit(f"run {run}: {view['reason']}")
    return view


def _stage_seconds(view: dict[str, Any], stage: str) -> float:
    return float(view["metrics"][f"{stage}.stage_seconds"])


def _serves(platform: Running, name: str) -> bool:
    return platform.client.get(f"/v1/recommenders/{name}").json()["serving"] is not None


def _recommendations(platform: Running, name: str, version: int) -> pl.DataFrame:
    path = platform.home / "artifacts" / "recommendations" / name / f"{version}.parquet"
    return pl.read_parquet(path).sort("user", "place")


def _bytes_of(platform: Running, name: str, version: int) -> float:
    files = platform.client.get(f"/v1/recommenders/{name}/versions/{version}").json()["files"]
    return float(sum(file["size"] for file in files.values()))


def _database_bytes(home: Path) -> float:
    return float(sum(path.stat().st_size for path in home.rglob("eyas.db*")))


def _send_events(platform: Running, world: World, name: str, kind: str, seed: int) -> float:
    """Returns events per second."""
    chance = np.random.default_rng(seed)
    users, items = (chance.choice(list(known), _EVENTS).tolist() for known in (world.users, world.items))
    if kind == "text":
        users, items = [world.users[user] for user in users], [world.items[item] for item in items]
    events = [{"recommender": name, "user": user, "item": item, "kind": "click"} for user, item in zip(users, items, strict=True)]

    def send() -> None:
        for start in range(0, _EVENTS, _BATCH):
            platform.client.post("/v1/events", json={"events": events[start : start + _BATCH]}).raise_for_status()

    return _EVENTS / timed(send)[0]


@benchmark("text_ids")
def text_ids(
    rows: int = 1_000_000,
    hashed: Annotated[int, "ids to hash and check"] = 10_000_000,
    seconds: Annotated[float, "of each load"] = 10,
    rounds: int = 3,
    families: Annotated[str, "families to train, separated by commas"] = "ease,mf",
) -> Iterator[Row | Missed]:
    if hashed:
        yield from _hashed(hashed)
    with scratch(on_disk=True) as folder:
        world = write_world(folder, rows)
        settings = {"EYAS_DATA_ROOTS": str(folder), "EYAS_CONTROL_RATE": "0", "EYAS_ONLINE_RATE": "0", "EYAS_RECOMMENDER_RATE": "0"}
        with running(folder / "home", UP, settings) as platform:
            until("the platform is ready", platform.is_ready, 120)
            for family in filter(None, families.split(",")):
                yield from _family(platform, world, family, rows, rounds)
            yield from _online(platform, world, seconds, rounds)


def _hashed(count: int) -> Iterator[Row | Missed]:
    ids = (str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))) for number in range(count))
    hash = IdHash(b"benchmark")
    began = time.perf_counter()
    keys = np.fromiter((hash.key(id) for id in ids), np.int64, count)
    yield Row(f"{count:,} UUIDs", "text", "hashed, with making the texts", "ids/s", [count / (time.perf_counter() - began)])
    equal = count - len(np.unique(keys))
    yield Row(f"{count:,} UUIDs", "text", "equal keys", "ids", [float(equal)])
    if equal:
        yield Missed(f"{equal} of {count:,} ids have the key of another id")


def _family(platform: Running, world: World, family: str, rows: int, rounds: int) -> Iterator[Row | Missed]:
    names = {kind: f"{family}-{kind}" for kind in KINDS}
    case = Figures(f"{family}, {rows:,} rows")
    versions: dict[str, int] = {}
    for seed in range(1, rounds + 1):
        for kind in KINDS if seed % 2 else reversed(KINDS):
            view = _run(platform, world, family, kind, seed)
            versions[kind] = view["version"]
            case.add(kind, "etl", "rows/s", rows / _stage_seconds(view, "etl"))
            case.add(kind, "train", "s", _stage_seconds(view, "train"))
            case.add(kind, "export", "s", _stage_seconds(view, "export"))
            for metric in _METRICS:
                case.add(kind, metric, "", view["metrics"][metric])
            case.add(kind, "artifacts of a version", "MB", _bytes_of(platform, names[kind], view["version"]) / 1e6)
    yield from case.rows()
    number, text = (_recommendations(platform, names[kind], versions[kind]) for kind in KINDS)
    places = {item: key for key, item in world.items.items()}
    back = text.with_columns(pl.col("user").replace_strict({text: key for key, text in world.users.items()}))
    back = back.with_columns(pl.col("item").replace_strict(places)).sort("user", "place")
    facts = pl.select(
        users=(number["user"] == back["user"]).mean(),
        items=(number["item"] == back["item"]).mean(),
        scores=(number["score"] - back["score"]).abs().max(),
    ).row(0)
    metrics = ("rows of the batch table with the same user", "rows with the same item", "largest difference of a score")
    for metric, value in zip(metrics, facts, strict=True):
        yield Row(case.case, "text", metric, "", [float(value)])


def _online(platform: Running, world: World, seconds: float, rounds: int) -> Iterator[Row]:
    names = {kind: f"online-{kind}" for kind in KINDS}
    users = np.random.default_rng(3).choice(list(world.users), 2_000).tolist()
    bodies = {"integer": bodies_of(users), "text": [f'{{"user": "{world.users[user]}", "k": 10}}' for user in users]}
    for kind, name in names.items():
        applied = platform.client.post("/v1/recommenders", json=world.spec(name, kind, FAMILIES["mf"]))
        applied.raise_for_status()
        _ended(platform, applied.json()["run"])
        until(f"{name} serves", lambda name=name: _serves(platform, name), 600, 0.2)  # type: ignore[misc]
    case = Figures("requests, 8 connections")
    for _ in range(rounds):
        for kind, name in names.items():
            before = cpu_seconds([platform.process])
            load = Load(Target.of(platform.url, name, platform.token()), bodies[kind], 8)
            outcome = separately(load, seconds)
            if outcome.failed:
                say(f"{name}: {dict(outcome.kinds)}")
            case.add(kind, "answers", "1/s", outcome.rate)
            case.add(kind, "CPU of an answer", "ms", 1000 * (cpu_seconds([platform.process]) - before) / len(outcome.milliseconds))
            case.add(kind, "median latency", "ms", outcome.percentile(50))
    yield from case.rows()
    events = Figures(f"{_EVENTS:,} events in batches of {_BATCH:,}")
    for seed in range(rounds):
        for kind, name in names.items():
            before = _database_bytes(platform.home)
            events.add(kind, "taken", "events/s", _send_events(platform, world, name, kind, seed))
            events.add(kind, "database", "bytes an event", (_database_bytes(platform.home) - before) / _EVENTS)
    yield from events.rows()


if __name__ == "__main__":
    text_ids()
