"""A recommender that serves, with its catalogue, its users' answers and likes, all in the real stores."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine

from services.eventlog.drift_samples import SqlDriftSamples
from services.eventlog.kpis import SqlKpis
from services.eventlog.sql import SqlEventLog
from services.monitor.retrain_signals import Monitor
from services.store.engine import open_engine, sqlite_url
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.routes import SqlRoutes
from shared.artifacts import FsspecArtifacts
from shared.contracts.events import Impression, Interaction
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import File, digest_of
from shared.domain.route import Route
from shared.ports import Version
from shared.testing.records import LINEAGE

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = "films"
ATTRIBUTION = timedelta(minutes=30)
DRAMAS = range(0, 50)
COMEDIES = range(50, 100)


def spec(name: str = NAME, *on: dict[str, Any]) -> RecommenderSpec:
    document = {
        "name": name,
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "film"}},
        "schema": {"user": "person", "item": "film", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
        "retrain": {"on": list(on)},
    }
    return RecommenderSpec.model_validate(document)


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)


class World:
    def __init__(self, folder: Path, migrated: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        shutil.copyfile(migrated, folder / "eyas.db")
        self.engine: Engine = open_engine(sqlite_url(folder / "eyas.db"))
        self.artifacts = FsspecArtifacts(str(folder / "artifacts"))
        self.recommenders, self.registry, self.routes = SqlRecommenders(self.engine), SqlRegistry(self.engine), SqlRoutes(self.engine)
        self.events, self.kpis = SqlEventLog(self.engine), SqlKpis(self.engine)
        self.sightings = SqlDriftSamples(self.engine)
        self.monitor = self.watcher()
        self._answers = 0
        self.serving_since = NOW

    def watcher(self) -> Monitor:
        """A monitor that has seen nothing yet, as after a restart."""
        stores = (self.recommenders, self.routes, self.registry, self.events, self.sightings, self.artifacts)
        return Monitor(*stores, self.clock)

    def apply(self, *on: dict[str, Any]) -> None:
        self.recommenders.put(spec(NAME, *on), self.clock.now(), "ada")

    def version(self, genres: dict[int, tuple[str, ...]] | None = None) -> int:
        """Registers a version whose catalogue has 100 films: dramas, then comedies; even ones are old."""
        genres = genres or {film: ("drama",) if film in DRAMAS else ("comedy",) for film in (*DRAMAS, *COMEDIES)}
        width = max(len(one) for one in genres.values())
        inputs = [
            {"name": "person", "dtype": "int64", "side": "user"},
            {"name": "film", "dtype": "int64", "side": "item"},
            {"name": "genres", "dtype": "string", "width": width, "side": "item"},
            {"name": "age", "dtype": "string", "side": "item"},
        ]
        content = io.BytesIO()
        np.savez(
            content,
            film=np.array(list(genres), np.int64),
            genres=np.array([(*one, *[""] * (width - len(one))) for one in genres.values()]),
            age=np.array(["old" if film % 2 == 0 else "new" for film in genres]),
        )
        signature = json.dumps({"user": "person", "item": "film", "inputs": inputs}).encode()
        files = {"signature.json": self.keep(signature), "catalogue.npz": self.keep(content.getvalue())}
        number = len(self.registry.list(NAME)) + 1
        return self.registry.register(Version(NAME, 0, f"r{number}", digest_of(files), files, {}, LINEAGE, None, NOW)).number

    def keep(self, content: bytes) -> File:
        path = self.folder / "content"
        path.write_bytes(content)
        return self.artifacts.put(path)

    def serve(self, version: int, **changes: Any) -> None:
        self.serving_since = self.clock.now()
        self.routes.put(NAME, Route(version, **changes), self.clock.now(), "ada", "a test")

    def like(self, films: Iterable[int], positive: bool = True) -> None:
        """One a second, each by another user."""
        events = []
        for film in films:
            self.clock.pass_by(seconds=1)
            events.append(Interaction(recommender=NAME, user=film, item=film, at=self.clock.now()))
        self.events.interactions(events, [positive] * len(events), ATTRIBUTION)

    def score(self, user: int, score: float, version: int = 1) -> None:
        """One answer that shows so much."""
        self.clock.pass_by(seconds=1)
        self._answers += 1
        shown = {"request_id": f"q{self._answers}", "recommender": NAME, "user": user, "version": version, "variant": "stable"}
        self.events.impressions([Impression(**shown, generation=1, step=-1, items=(7,), score=score, at=self.clock.now())])

    def answer(self, version: int, count: int, hits: int, seconds: float = 1) -> None:
        """So many answers, so many seconds apart; the first ones are hits."""
        impressions, likes = [], []
        for number in range(count):
            self.clock.pass_by(seconds=seconds)
            self._answers += 1
            name, at = f"q{self._answers}", self.clock.now()
            shown = {"request_id": name, "recommender": NAME, "user": number, "version": version, "variant": "stable", "generation": 1}
            impressions.append(Impression(**shown, step=-1, items=(7,), at=at))
            if number < hits:
                likes.append(Interaction(recommender=NAME, user=number, item=7, request_id=name, at=at))
        self.events.impressions(impressions)
        self.events.interactions(likes, [True] * len(likes), ATTRIBUTION)


@pytest.fixture
def world(tmp_path: Path, migrated_sqlite: Path) -> Iterator[World]:
    made = World(tmp_path, migrated_sqlite)
    yield made
    made.engine.dispose()
