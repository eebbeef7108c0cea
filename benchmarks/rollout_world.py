"""A home with registered versions in it, without a run: small real units, so that serving is measured and no training.

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
from shared.contracts.stage import Files, digest_of
from shared.domain.entity_ids import IdKinds
from shared.domain.machine import Request
from shared.domain.rollout import RolloutStatus
from shared.domain.route import Route
from shared.ports import Record, RolloutRecord, Version
from shared.testing.model_server_suite import tiny_model
from shared.testing.records import LINEAGE

NAME = "films"
ITEMS = 100


def recommender_spec(name: str = NAME, **changes: Any) -> RecommenderSpec:
    document = {
        "name": name,
        "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "item"}},
        "schema": {"user": "user", "item": "item", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "gates": [],
    }
    return RecommenderSpec.model_validate(document | changes)


def write_unit(folder: Path, users: int, items: int = ITEMS, model: bytes = b"") -> None:
    """The files of a served unit; without a model, those of a unit for a fake model server."""
    inputs = [{"name": name, "dtype": "int64", "side": name} for name in ("user", "item")]
    keys = np.arange(1, items + 1)
    if model:
        (folder / "model.onnx").write_bytes(model)
    (folder / "signature.json").write_text(json.dumps({"user": "user", "item": "item", "inputs": inputs}))
    np.savez(folder / "catalogue.npz", item=keys)
    np.save(folder / "popular.npy", keys, allow_pickle=False)
    np.save(folder / "users.npy", np.arange(users), allow_pickle=False)


def put_files(artifacts: FsspecArtifacts, folder: Path) -> Files:
    return {path.name: artifacts.put(path) for path in sorted(folder.iterdir())}


class World:
    """Stores of a platform's home, on its database and its artifacts."""

    def __init__(self, home: Path, users: int, rollout: Mapping[str, Any], url: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.engine = open_engine(url or sqlite_url(home / "eyas.db"))
        upgrade(self.engine)
        self.artifacts = FsspecArtifacts(str(home / "artifacts"))
        self.recommenders = SqlRecommenders(self.engine)
        self.registry = SqlRegistry(self.engine)
        self.routes = SqlRoutes(self.engine)
        self.rollouts = SqlResources(self.engine, "rollout", RolloutStatus, RolloutSpec)
        self.spec = recommender_spec(serve={"filter": [{"available": True}]}, rollout=rollout)
        self._users = users
        self.put_spec(self.spec)

    def put_spec(self, spec: RecommenderSpec) -> None:
        self.recommenders.put(spec, datetime.now(UTC), "bench")
        self.recommenders.fix_ids(spec.name, IdKinds("integer", "integer"))

    def version(self, model: bytes | None = None, name: str = NAME) -> int:
        """Registers the next one."""
        with tempfile.TemporaryDirectory() as folder:
            write_unit(Path(folder), self._users, model=model or tiny_model(self.next_number(name)))
            return self.register(Path(folder), name)

    def next_number(self, name: str = NAME) -> int:
        return len(self.registry.list(name)) + 1

    def register(self, folder: Path, name: str = NAME) -> int:
        """Registers the files of a folder as the next version."""
        files, run = put_files(self.artifacts, folder), f"by-hand-{name}-{self.next_number(name)}"
        version = Version(name, 0, run, digest_of(files), files, {}, LINEAGE, None, datetime.now(UTC))
        return self.registry.register(version).number

    def serve(self, route: Route, name: str = NAME) -> Route:
        return self.routes.put(name, route, datetime.now(UTC), "bench", "a benchmark")

    def start(self, version: int, id: str, now: datetime | None = None) -> RolloutRecord:
        now = now or datetime.now(UTC)
        rollout_spec = RolloutSpec(version, self.spec.document())
        return self.rollouts.create(Record(id, NAME, rollout_spec, RolloutStatus(), now, now), "bench")

    def ask(self, id: str, verb: str, now: datetime) -> None:
        self.rollouts.ask(id, Request(verb, "bench"), now)

    def close(self) -> None:
        self.engine.dispose()
