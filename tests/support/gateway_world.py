"""A small world around a gateway: SQL stores, ports in memory, and two versions that can be told apart by their scores."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import numpy as np

from services.featurestore.sql import SqlFeatureStore
from services.gateway import Gateway, Stores
from services.index.opening import OpenIndexes
from services.store.catalogue import SqlCatalogue
from services.store.shadow_totals import SqlShadowTotals
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import File
from shared.domain.entity_ids import UNFIXED, IdHash, IdKinds
from shared.domain.errors import NotFound, Unavailable
from shared.ports import IngestResult, Recommender, Version
from shared.testing.records import LINEAGE
from tests.support.databases import empty_engine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = [10, 20, 30, 40, 50]


def spec(name: str = "m", **changes: object) -> RecommenderSpec:
    document = {
        "name": name,
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "movieId"}},
        "schema": {"user": "userId", "item": "movieId", "time": "t", "label": {"column": "rating", "positive": ">= 4"}},
        **changes,
    }
    return RecommenderSpec.model_validate(document)


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)


class Artifacts:
    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.reads = 0

    def keep(self, content: bytes) -> File:
        file = File(sha256=hashlib.sha256(content).hexdigest(), size=len(content))
        self.blobs[file.sha256] = content
        return file

    def read(self, file: File) -> bytes:
        self.reads += 1
        return self.blobs[file.sha256]


class World:
    """All ports of the gateway. `said` lists what happened, in order. Only the newest world of a process may use the database."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.artifacts = Artifacts()
        self.said: list[str] = []
        self.kinds = UNFIXED
        self.routes: dict[str, object] = {}
        self.specs = {"m": spec()}
        self.generations: dict[str, list[object]] = {}
        self.told_routes: dict[str, object] = {}
        self.told_heads: dict[str, int] = {}
        self.versions: dict[tuple[str, int], Version] = {}
        self.store_fails = False
        self.reported: list[tuple[datetime, dict[str, int]]] = []
        self.scores = np.array([5, 4, 3, 2, 1], np.float32)
        self.scoring_fails = False
        self.own_scores: dict[int, np.ndarray] = {}
        """By version, where it isn't as the others."""
        self.hanging: dict[int, threading.Event] = {}
        """Versions that answer once their event is set."""
        self.feeds: list[tuple[int, dict[str, np.ndarray]]] = []
        self.looked_since: datetime | None = None
        self.likes: frozenset[int] = frozenset()
        self.shown: list = []
        self.taken: list = []
        self.log_fails = False
        self.log_hangs: threading.Event | None = None
        self.engine = empty_engine()
        self.mirrors = SqlShadowTotals(self.engine)
        self.catalogue = SqlCatalogue(self.engine)
        self.features: Any = Mock(wraps=SqlFeatureStore(self.engine))
        self.gateways: list[Gateway] = []
        self.luck = 1.0
        """Nothing is explored."""

    def add_version(self, number: int, **changes: object) -> None:
        inputs = [
            {"name": "userId", "dtype": "int64", "side": "user"},
            {"name": "movieId", "dtype": "int64", "side": "item"},
            {"name": "genres", "dtype": "string", "width": 2, "side": "item"},
        ]
        catalogue = io.BytesIO()
        np.savez(catalogue, movieId=np.array(ITEMS, np.int64), genres=np.array([["a", ""]] * len(ITEMS)))
        files = {
            "signature.json": json.dumps({"user": "userId", "item": "movieId", "inputs": inputs}).encode(),
            "catalogue.npz": catalogue.getvalue(),
            "popular.npy": npy([50, 40, 30, 20, 10]),
            "users.npy": npy([1, 2, 3, 4, 5]),
            **changes,
        }
        kept = {name: self.artifacts.keep(content) for name, content in files.items() if content is not None}
        self.versions["m", number] = Version("m", number, f"r{number}", "d", kept, {}, LINEAGE, None, NOW)

    # RouteStore
    def all(self):
        if self.store_fails:
            raise Unavailable("the store is away")
        if self.told_routes != self.routes:
            self.told_routes = dict(self.routes)
        return self.told_routes

    def heads(self):
        """A generation for each thing that a spec has ever said."""
        found = {}
        for name, one in self.specs.items():
            said = self.generations.setdefault(name, [])
            if one not in said:
                said.append(one)
            found[name] = said.index(one) + 1
        if self.told_heads != found:
            self.told_heads = found
        return self.told_heads

    def heard(self, gateway, now):
        """Nothing is known of any: each reports."""
        return False

    def report(self, gateway, served, now):
        self.said.append(f"report {dict(served)}")
        self.reported.append((now, dict(served)))

    # RecommenderStore and Registry
    def get(self, name, number=None):
        if number is not None:
            self.said.append(f"load {number}")
            return self.versions[name, number]
        if self.store_fails:
            raise Unavailable("the store is away")
        if name not in self.specs:
            raise NotFound(f"no recommender is called '{name}'")
        return Recommender(name, self.heads()[name], self.specs[name], NOW, NOW, self.kinds)

    def fix_ids(self, name: str, kinds: IdKinds) -> IdKinds:
        self.kinds = IdKinds(self.kinds.user or kinds.user, self.kinds.item or kinds.item)
        return self.kinds

    # ModelServer
    def score(self, name, number, feed, patience=None):
        self.feeds.append((number, dict(feed)))
        if number in self.hanging:
            self.hanging[number].wait(30)
        if self.scoring_fails:
            raise Unavailable("Triton is away")
        scores = self.own_scores.get(number, self.scores)
        if np.shape(scores) != (len(ITEMS),):
            return scores
        return np.array([scores[ITEMS.index(item)] for item in feed["movieId"].tolist()])

    # EventLog
    def impressions(self, impressions):
        if self.log_hangs is not None:
            self.log_hangs.wait(30)
        if self.log_fails:
            raise Unavailable("the log is away")
        self.shown += impressions

    def seen_items(self, recommender, users, since=None, limit=1000):
        if self.log_hangs is not None:
            self.log_hangs.wait(30)
        if self.log_fails:
            raise Unavailable("the log is away")
        self.looked_since = since
        return {user: dict.fromkeys(self.likes, NOW) for user in users if self.likes}

    def interactions(self, interactions, positive, attribution):
        self.taken.append((list(interactions), list(positive), attribution))
        return IngestResult(new=len(interactions), hits=sum(positive))

    def fail(self, *_):
        raise Unavailable("the store is away")

    def gateway(self) -> Gateway:
        made = Gateway(
            Stores(self, self, self.artifacts, self, self, self.mirrors, self.catalogue, OpenIndexes(), IdHash(b"test"), self.features),
            self,
            self.clock,
            "g1",
            lambda: self.luck,
        )
        self.gateways.append(made)
        return made

    def close(self) -> None:
        """Frees what hangs, and ends the gateways' threads."""
        for event in (self.log_hangs, *self.hanging.values()):
            if event is not None:
                event.set()
        for gateway in self.gateways:
            gateway.close()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(keys: list[int]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(keys, np.int64))
    return stream.getvalue()
