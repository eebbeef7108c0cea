"""A home with registered versions in it, without a run: small real units, so that a rollout is measured and no training.

Version n scores an item by its key and by n, so versions are told apart by their answers; every user is known to every version.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.resources import SqlResources
from services.store.routes import SqlRoutes
from shared.artifacts import FsspecArtifacts
from shared.contracts.records import RolloutSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import digest_of
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.ports import Record, RolloutRecord, Version
from shared.testing.model_server_suite import tiny_model
from shared.testing.records import LINEAGE

NAME = "films"
ITEMS = 100


def specified(rollout: Mapping[str, Any]) -> RecommenderSpec:
    return RecommenderSpec.model_validate(
        {
            "name": NAME,
            "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "item"}},
            "schema": {"user": "user", "item": "item", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
            "gates": [],
            "serve": {"filter": [{"available": True}]},
            "rollout": rollout,
        }
    )


class World:
    """Beside whoever runs the platform on that home: the same database, the same artifacts."""

    def __init__(self, home: Path, users: int, rollout: Mapping[str, Any], url: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.engine = open_engine(url or sqlite_url(home / "eyas.db"))
        upgrade(self.engine)
        self.artifacts = FsspecArtifacts(str(home / "artifacts"))
        self.recommenders = SqlRecommenders(self.engine)
        self.registry = SqlRegistry(self.engine)
        self.routes = SqlRoutes(self.engine)
        self.rollouts = SqlResources(self.engine, "rollout", RolloutStatus, RolloutSpec)
        self.spec = specified(rollout)
        self._users = users
        self.recommenders.put(self.spec, datetime.now(UTC), "bench")

    def version(self, model: bytes | None = None) -> int:
        """Registers the next one."""
        number = len(self.registry.list(NAME)) + 1
        inputs = [{"name": "user", "dtype": "int64", "side": "user"}, {"name": "item", "dtype": "int64", "side": "item"}]
        items = np.arange(1, ITEMS + 1)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "model.onnx").write_bytes(model or tiny_model(number))
            (place / "signature.json").write_text(json.dumps({"user": "user", "item": "item", "inputs": inputs}))
            np.savez(place / "catalogue.npz", item=items)
            np.save(place / "popular.npy", items, allow_pickle=False)
            np.save(place / "users.npy", np.arange(self._users), allow_pickle=False)
            files = {path.name: self.artifacts.put(path) for path in sorted(place.iterdir())}
        run, now = f"by-hand-{number}", datetime.now(UTC)
        return self.registry.register(Version(NAME, 0, run, digest_of(files), files, {}, LINEAGE, None, now)).number

    def serve(self, route: Route) -> Route:
        return self.routes.put(NAME, route, datetime.now(UTC), "bench", "a benchmark")

    def start(self, version: int, id: str, now: datetime | None = None) -> RolloutRecord:
        now = now or datetime.now(UTC)
        rollout_spec = RolloutSpec(version, self.spec.document())
        return self.rollouts.create(Record(id, NAME, rollout_spec, RolloutStatus(), now, now), "bench")

    def ask(self, id: str, verb: str, now: datetime) -> None:
        self.rollouts.ask(id, Request(verb, "bench"), now)

    def close(self) -> None:
        self.engine.dispose()
