"""A platform's database after months of use: many recommenders with specs, versions, runs, routes, retrainers; or many runs of one."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Table, insert

from benchmarks.rollout_world import ITEMS, NAME, put_files, recommender_spec, write_unit
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.recommenders import SqlRecommenders
from services.store.tables import history, recommender_history, recommenders, resources, route_history, routes, versions
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
_PIECE, _RUNS_PIECE = 1_000, 5_000
_EVENTS = ("", "pending", "etl", "train", "evaluate", "refit", "export", "verify", "registered")
_STATES = ("registered", "failed", "rejected", "cancelled")
Rows = dict[Table, list[dict[str, Any]]]


def name_of(number: int) -> str:
    return f"shop-{number:06}"


def specified(name: str) -> RecommenderSpec:
    """Read by every kind of trigger that reads events."""
    triggers = [{"kpi": {"hit_rate": "-10%"}}, {"drift": {"psi": 0.3}}, {"new_events": {"count": 10_000}}]
    return recommender_spec(name, split={"refit": False}, retrain={"on": triggers})


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    upgrade(engine)
    yield engine
    engine.dispose()


def fill(url: str, artifacts: FsspecArtifacts, count: int) -> None:
    """Many recommenders that serve. All have the same served files, so the disk is not measured."""
    begun = datetime.now(UTC) - timedelta(days=60)
    with tempfile.TemporaryDirectory() as folder:
        write_unit(Path(folder), ITEMS + 1)
        files = put_files(artifacts, Path(folder))
    with _opened(url) as engine:
        document = specified("shop").document()
        for first in range(0, count, _PIECE):
            rows: Rows = defaultdict(list)
            for number in range(first, min(first + _PIECE, count)):
                _add(rows, name_of(number), document | {"name": name_of(number)}, files, begun)
            _insert(engine, rows)
        if engine.dialect.name == "postgresql":
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")


def fill_runs(url: str, count: int) -> Sequence[str]:
    """Ended runs of one recommender, with a history of seven lines each, as a year of use would leave them."""
    start, ids = datetime.now(UTC) - timedelta(days=365), [f"r{number:010}" for number in range(count)]
    spec = recommender_spec(split={"refit": False})
    document = encode(RunSpec, RunSpec(spec.document(), 1, "full", "a benchmark", None, "bench", False, ""))
    with _opened(url) as engine:
        SqlRecommenders(engine).put(spec, start, "bench")
        for first in range(0, count, _RUNS_PIECE):
            rows: Rows = defaultdict(list)
            for number, id in enumerate(ids[first : first + _RUNS_PIECE], first):
                at, state = start + timedelta(minutes=5 * number), _STATES[number % len(_STATES)]
                rows[resources].append(_row("run", id, NAME, document, {"state": state, "reason": "it ended"}, state, at, finished=True))
                rows[history] += _lines("run", id, at, [("pending", "etl")] * 7)
            _insert(engine, rows)
    return ids


def _insert(engine: Engine, rows: Rows) -> None:
    with engine.begin() as connection:
        for table, own in rows.items():
            connection.execute(insert(table), own)


def _add(rows: Rows, name: str, spec: dict[str, Any], files: Files, begun: datetime) -> None:
    rows[recommenders].append({"name": name, "generation": 1, "spec": spec, "created_at": begun, "updated_at": begun})
    rows[recommender_history].append({"name": name, "generation": 1, "spec": spec, "at": begun, "actor": "bench"})
    run_spec = encode(RunSpec, replace(RUN_SPEC, document=spec, cause="a benchmark"))
    for run in range(RUNS):
        id, at = f"{name}-r{run}", begun + timedelta(days=run)
        rows[resources].append(
            _row("run", id, name, run_spec, {"state": "registered", "reason": "it ended"}, "registered", at, finished=True)
        )
        rows[history] += _lines("run", id, at, pairwise(_EVENTS))
    for version in range(1, VERSIONS + 1):
        at = begun + timedelta(days=version)
        lineage = encode(Lineage, replace(LINEAGE, snapshot=at))
        row = {"recommender": name, "number": version, "run": f"{name}-r{version}", "digest": digest_of(files)}
        rows[versions].append(row | {"files": encode(Files, files), "metrics": {}, "lineage": lineage, "parent": None, "created_at": at})
        route = {"recommender": name, "generation": version, "stable": version, "candidate": None, "weight": 0.0}
        route |= {"salt": "", "step": 0, "shadow": False, "since": at}
        rows[route_history].append(route | {"actor": "bench", "reason": "it was promoted"})
    rows[routes].append(route)
    watching = encode(RetrainerStatus, RetrainerStatus())
    rows[resources].append(_row("retrainer", name, name, {}, watching, "watching", begun, finished=False))
    rows[history] += _lines("retrainer", name, begun, [("", "pending")])


def _row(kind: str, id: str, name: str, spec: Any, status: Any, state: str, at: datetime, *, finished: bool) -> dict[str, Any]:
    row = {"kind": kind, "id": id, "recommender": name, "spec": spec, "status": status, "state": state, "revision": 7}
    return row | {"finished": finished, "created_at": at, "due_at": at, "priority": 0}


def _lines(kind: str, id: str, at: datetime, moves: Any) -> list[dict[str, Any]]:
    line = {"kind": kind, "id": id, "at": at, "reason": "", "actor": "eyas"}
    return [line | {"source": source, "target": target} for source, target in moves]
