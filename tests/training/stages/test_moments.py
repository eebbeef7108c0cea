"""A value of a user that gives the label away, written just before the interaction or just after it: training and evaluation see the first
one alone, serving begins with either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shared.artifacts.store import FsspecArtifacts
from shared.contracts.online import ONLINE, USERS, Online, history_name
from shared.contracts.stage import Files, Manifest
from shared.serving.values_file import read_values
from tests.support.stage_runner import StageRunner

COUNT, FILMS, BEGIN = 5_000, 40, 1_600_000_000
SECOND = 1_000_000


class Moods(StageRunner):
    """Each user meets one film, and likes it or not by a coin: nothing but the mood tells which. The last users are held out."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))
        chance, users = np.random.default_rng(11), np.arange(COUNT)
        self.liked = chance.integers(0, 2, COUNT)
        self.times = BEGIN + users * 60
        met = {"userId": users, "filmId": chance.integers(0, FILMS, COUNT), "rating": self.liked * 5.0, "at": self.times}
        pl.DataFrame(met).write_parquet(folder / "ratings.parquet")
        pl.DataFrame({"filmId": range(FILMS)}).write_parquet(folder / "films.parquet")
        pl.DataFrame({"userId": users, "mood": ["calm"] * COUNT}).write_parquet(folder / "users.parquet")
        tables = {"users": "userId", "items": "filmId", "interactions": None}
        names = {"users": "users", "items": "films", "interactions": "ratings"}
        self.recommender: dict[str, Any] = {
            "name": "moods",
            "data": {
                table: {"uri": str(folder / f"{names[table]}.parquet")} | ({"key": key} if key else {}) for table, key in tables.items()
            },
            "schema": {"user": "userId", "item": "filmId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
            "features": [{"categorify": ["userId", "filmId", "mood"]}],
            "model": {"params": {"layers": [8]}, "train": {"epochs": 3, "batch_size": 256}},
            "gates": [{"metric": "auc", "min": 0.0}],
        }

    def said(self, apart: float) -> Files:
        """Each user's mood, written so many seconds after the interaction."""
        path = self.folder / history_name(USERS)
        rows = zip(range(COUNT), self.times.tolist(), self.liked.tolist(), strict=True)
        said = ({"key": user, "at": int((at + apart) * SECOND), "values": {"mood": ["sad", "glad"][liked]}} for user, at, liked in rows)
        path.write_text("".join(json.dumps(one) + "\n" for one in said))
        return {path.name: self.store.put(path)}

    def moods(self, export: Manifest) -> dict[int, Any]:
        """As the version brings them into the feature store."""
        (view,) = Online.model_validate_json(self.fetch(export, ONLINE).read_text()).views
        parts = [read_values(self.fetch(export, name).read_bytes(), view, name) for name in view.parts]
        return {row.key: row.values["mood"] for part in parts for row in (part.row(at, view.columns) for at in range(len(part)))}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Moods:
    return Moods(tmp_path_factory.mktemp("moods"))


@pytest.mark.requirement("G-08")
@pytest.mark.timeout(600)
def test_a_value_written_after_the_label_gives_nothing_away_and_serving_has_it(runner: Moods) -> None:
    made = runner.run("late", {"features": runner.said(1)})
    assert made["evaluate"].metrics["candidate.auc"] == pytest.approx(0.5, abs=0.08), "by chance: 0.018 is one standard deviation"
    expected = {user: ["sad", "glad"][liked] for user, liked in enumerate(runner.liked.tolist())}
    assert runner.moods(made["export"]) == expected
    with np.load(runner.fetch(made["export"], "parity.npz"), allow_pickle=False) as rows:
        asked = dict(zip(rows["userId"].tolist(), rows["mood"].tolist(), strict=True))
    assert len(asked) > COUNT / 2
    assert {user: mood for user, mood in asked.items() if user in expected} == {user: expected[user] for user in asked if user in expected}


@pytest.mark.requirement("G-08")
@pytest.mark.timeout(600)
def test_a_value_written_before_the_label_is_learnt_from(runner: Moods) -> None:
    made = runner.run("early", {"features": runner.said(-1)})
    assert made["evaluate"].metrics["candidate.auc"] > 0.95
