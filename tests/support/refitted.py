"""A run's stages up to the refit in the test's own process, and what a refit must hold true of whatever family it trains."""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageSpec
from shared.domain.gate import REFIT, Verdict, judge
from shared.stage_process import Outcome

USERS, ITEMS = 60, 24
NEWCOMER = 900
"""A user of the newest rows alone."""
STAGES = ("etl", "train", "evaluate", "refit", "export")
TINY: dict[str, Any] = {"epochs": 2, "batch_size": 256}
STEPS: dict[str, dict[str, Any]] = {
    "mlp": {"params": {"layers": [8], "width": 4}, "train": TINY},
    "wide_deep": {"params": {"layers": [8], "width": 4}, "train": TINY},
    "dlrm": {"params": {"bottom": [8, 4], "layers": [8], "width": 4}, "train": TINY},
    "deepfm": {"params": {"layers": [8], "width": 4}, "train": TINY},
    "dcn": {"params": {"crosses": 2, "layers": [8], "width": 4}, "train": TINY},
    "neumf": {"params": {"layers": [8], "width": 4}, "train": TINY},
    "two_tower": {"params": {"layers": [8], "width": 4}, "train": TINY},
    "session": {"params": {"width": 8}, "train": TINY},
}
"""Tiny models of families that a framework trains."""


def ratings(rows: int, seed: int = 1, start: float = 1.6e9) -> pl.DataFrame:
    """Each user likes one item in four; a pair is met once, or by chance again."""
    random = np.random.default_rng(seed)
    user, item = random.integers(0, USERS, rows), random.integers(0, ITEMS, rows)
    liked = random.random(rows) < np.where(user % 4 == item % 4, 0.9, 0.1)
    return pl.DataFrame({"user": user, "item": item, "stars": np.where(liked, 5.0, 1.0), "at": start + np.arange(rows) * 60.0})


@dataclass
class Stages:
    """Runs stages over a data set in a folder; outcomes by stage."""

    folder: Path
    done: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole = ratings(1_500)
        newcomer = pl.DataFrame(
            {"user": np.full(8, NEWCOMER), "item": np.arange(8), "stars": 5.0, "at": whole["at"].max() - np.arange(8.0) - 0.5}
        )
        pl.concat([whole, newcomer]).sort("at").write_parquet(self.folder / "ratings.parquet")
        genres = [["Drama", "Comedy", "Horror", "Kids"][n % 4] for n in range(ITEMS)]
        pl.DataFrame({"item": range(ITEMS), "genre": genres}).write_parquet(self.folder / "items.parquet")
        self.store = FsspecArtifacts(str(self.folder / "artifacts"))
        self._published: dict[str, Files] = {}

    def spec(self, **changes: Any) -> RecommenderSpec:
        document = {
            "name": "films",
            "data": {
                "interactions": {"uri": str(self.folder / "ratings.parquet")},
                "items": {"uri": str(self.folder / "items.parquet"), "key": "item"},
            },
            "schema": {"user": "user", "item": "item", "time": "at", "label": {"column": "stars", "positive": ">= 4"}},
            "features": [{"categorify": ["user", "item"]}, {"categorify": ["genre"]}, {"target_encode": {"of": "item"}}],
            "gates": [{"parity": 1e-4}],
            **changes,
        }
        return RecommenderSpec.model_validate(document)

    def stage(self, name: str, spec: RecommenderSpec, inputs: dict[str, Files], run: str = "r1", **more: Any) -> Outcome:
        scratch = self.folder / f"{run}-{name}"
        scratch.mkdir()
        stage = StageSpec(
            stage=name,  # type: ignore[arg-type]
            run=run,
            attempt=f"{run}-{name}-1",
            recommender=spec,
            inputs=inputs,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
            **more,
        )
        found: Outcome = importlib.import_module(f"pipelines.stages.{name}").run(
            Context(stage, scratch, self.store, logging.getLogger("test"))
        )
        return found

    def run(self, spec: RecommenderSpec, run: str = "r1", more: dict[str, Files] | None = None, **settings: Any) -> dict[str, Outcome]:
        """All stages, each with the files that the control plane gives it."""
        files: dict[str, Files] = {}
        for name in STAGES:
            given = {stage: files[stage] for stage in ("etl", "train") if stage in files}
            if name == "export":
                given = {"etl": files["etl"] | files["refit"], "train": files["refit"]}
            parent = (more or {}) if name != "export" else {}
            self.done[name] = self.stage(name, spec, given | parent, run, **settings)
            files[name] = {one: self.store.put(path) for one, path in self.done[name].files.items()}
        self._published = files
        return self.done

    def inputs(self, *stages: str) -> dict[str, Files]:
        """The files of these stages of the newest run."""
        return {name: self._published[name] for name in stages}

    def events(self, seed: int, start: float, rows: int = 700) -> Files:
        """What the platform was told since."""
        path = self.folder / f"events-{seed}.csv"
        ratings(rows, seed, start).rename({"stars": "value", "at": "time"}).write_csv(path)
        return {"events.csv": self.store.put(path)}

    @property
    def parent(self) -> Files:
        """What a warm child of the last run is given."""
        return {**self._published["etl"], **self._published["refit"]}

    def rows(self, stage: str, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.done[stage].files[name])


def check_refit(stages: Stages) -> None:
    """Of the last run, a full one."""
    data = pl.concat([stages.rows("etl", name).select("user", "item", "time", "label") for name in ("train.parquet", "holdout.parquet")])
    held, trained = stages.rows("refit", "held.parquet"), stages.rows("refit", "train.parquet")
    likes = stages.rows("etl", "holdout.parquet")["label"].sum()
    assert 0 < len(held) <= likes // 10 and held["user"].is_unique().all()
    left = data.join(held, on=["user", "item"], how="anti")
    assert (
        trained.select("user", "item", "time")
        .sort("user", "item", "time")
        .equals(left.select("user", "item", "time").sort("user", "item", "time"))
    )
    newest, of_candidate = left["time"].max(), stages.rows("etl", "train.parquet")["time"].max()
    assert stages.done["refit"].facts["newest"] == newest > of_candidate == stages.done["etl"].facts["split"]["newest_trained"]
    assert stages.done["refit"].facts["rows"] == len(left)
    assert not set(stages.done["evaluate"].metrics) & set(stages.done["refit"].metrics), "offline figures are those of the candidate"
    metrics = stages.done["refit"].metrics
    assert judge(REFIT, metrics, serving=False).verdict is Verdict.PASS, metrics
    assert NEWCOMER in np.load(stages.done["export"].files["users.npy"])
    assert NEWCOMER not in stages.rows("etl", "vocabulary.user.parquet")["value"]
    assert stages.done["export"].metrics["export.parity"] < 1e-5
