"""A platform's database after some months of use by many recommenders: specs, versions, runs that ended, routes, retrainers."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Engine, Table, insert

from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.tables import (
    history,
    recommender_history,
    recommenders,
    resources,
    route_history,
    routes,
    versions,
)
from shared.artifacts import FsspecArtifacts
from shared.contracts.codec import encode
from shared.contracts.records import Lineage, RunSpec
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, digest_of
from shared.domain.triggers import RetrainerStatus
from shared.testing.records import LINEAGE, RUN_SPEC

VERSIONS = 2
RUNS = 3
"""Of each recommender, ended."""
ITEMS = 100
_PIECE = 1_000
_EVENTS = ("pending", "etl", "train", "evaluate", "refit", "export", "verify", "registered")


def name_of(number: int) -> str:
    return f"shop-{number:06}"


def specified(name: str) -> RecommenderSpec:
    """Looked at by every kind of trigger that reads events."""
    return RecommenderSpec.model_validate(
        {
            "name": name,
            "data": {"interactions": {"uri": "ratings.csv"}, "items": {"uri": "movies.csv", "key": "movieId"}},
            "schema": {"user": "userId", "item": "movieId", "time": "timestamp", "label": {"column": "rating", "positive": ">= 4"}},
            "gates": [],
            "split": {"refit": False},
            "retrain": {"on": [{"kpi": {"hit_rate": "-10%"}}, {"drift": {"psi": 0.3}}, {"new_events": {"count": 10_000}}]},
        }
    )


def fill(url: str, artifacts: FsspecArtifacts, count: int) -> None:
    engine = open_engine(url)
    upgrade(engine)
    files = _unit(artifacts)
    begun = datetime.now(UTC) - timedelta(days=60)
    for first in range(0, count, _PIECE):
        _write(engine, range(first, min(first + _PIECE, count)), files, begun)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


def _write(engine: Engine, numbers: range, files: Files, begun: datetime) -> None:
    rows: dict[Table, list[dict[str, Any]]] = {
        table: [] for table in (recommenders, recommender_history, versions, routes, route_history, resources, history)
    }
    document = specified("shop").document()
    kept = encode(Files, files)
    watching = encode(RetrainerStatus, RetrainerStatus())
    for number in numbers:
        name = name_of(number)
        spec = document | {"name": name}
        rows[recommenders].append({"name": name, "generation": 1, "spec": spec, "created_at": begun, "updated_at": begun})
        rows[recommender_history].append({"name": name, "generation": 1, "spec": spec, "at": begun, "actor": "bench"})
        for run in range(RUNS):
            rows[resources].append(_run(f"{name}-r{run}", name, spec, begun + timedelta(days=run)))
            rows[history] += _lines("run", f"{name}-r{run}", begun + timedelta(days=run))
        for version in range(1, VERSIONS + 1):
            at = begun + timedelta(days=version)
            lineage = encode(Lineage, replace(LINEAGE, snapshot=at))
            row = {"recommender": name, "number": version, "run": f"{name}-r{version}", "digest": digest_of(files), "files": kept}
            rows[versions].append(row | {"metrics": {}, "lineage": lineage, "parent": None, "created_at": at})
            route = {"recommender": name, "generation": version, "stable": version, "candidate": None, "weight": 0.0}
            route |= {"salt": "", "step": 0, "shadow": False, "since": at}
            rows[route_history].append(route | {"actor": "bench", "reason": "it was promoted"})
        rows[routes].append(route)
        rows[resources].append(_row("retrainer", name, name, {}, watching, "watching", begun, finished=False))
        rows[history] += _lines("retrainer", name, begun)[:1]
    with engine.begin() as connection:
        for table, those in rows.items():
            connection.execute(insert(table), those)


def _run(id: str, name: str, spec: dict[str, Any], at: datetime) -> dict[str, Any]:
    run_spec = encode(RunSpec, replace(RUN_SPEC, document=spec, cause="a benchmark"))
    return _row("run", id, name, run_spec, {"state": "registered", "reason": "it ended"}, "registered", at, finished=True)


def _row(kind: str, id: str, name: str, spec: Any, status: Any, state: str, at: datetime, *, finished: bool) -> dict[str, Any]:
    row = {"kind": kind, "id": id, "recommender": name, "spec": spec, "status": status, "state": state, "revision": 7}
    return row | {"finished": finished, "created_at": at, "due_at": at, "priority": 0}


def _lines(kind: str, id: str, at: datetime) -> list[dict[str, Any]]:
    states = ("", *_EVENTS)
    line = {"kind": kind, "id": id, "at": at, "reason": "", "actor": "eyas"}
    return [line | {"source": source, "target": target} for source, target in pairwise(states)]


def _unit(artifacts: FsspecArtifacts) -> Files:
    """A served unit of `ITEMS` items; the same content for all, so what is measured isn't the disk."""
    inputs = [{"name": "userId", "dtype": "int64", "side": "user"}, {"name": "movieId", "dtype": "int64", "side": "item"}]
    catalogue = io.BytesIO()
    keys = np.arange(1, ITEMS + 1)
    np.savez(catalogue, movieId=keys)
    content = {
        "signature.json": json.dumps({"user": "userId", "item": "movieId", "inputs": inputs}).encode(),
        "catalogue.npz": catalogue.getvalue(),
        "popular.npy": _npy(keys),
        "users.npy": _npy(keys),
    }
    with tempfile.TemporaryDirectory() as folder:
        return {name: artifacts.put(path) for name, path in _written(Path(folder), content)}


def _written(folder: Path, content: dict[str, bytes]) -> Iterator[tuple[str, Path]]:
    for name, what in content.items():
        (folder / name).write_bytes(what)
        yield name, folder / name


def _npy(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()
