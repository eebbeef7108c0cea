"""The stages of a run as processes, over a small data set of known tastes: what a control plane would start, without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shared.artifacts.store import FsspecArtifacts
from shared.contracts.stage import Files, Manifest, StageSpec

USERS, ITEMS, ROWS = 300, 80, 12_000
GENRES = np.array(["Drama", "Comedy", "Horror", "Kids"])


def tastes(random: np.random.Generator, users: int, rows: int) -> pl.DataFrame:
    """Each user likes one genre in four; an item's genre is its key modulo four."""
    user, item = random.integers(0, users, rows), random.integers(0, ITEMS, rows)
    liked = random.random(rows) < np.where(user % 4 == item % 4, 0.85, 0.05)
    return pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(liked, 5.0, 1.0)})


class StageRunner:
    """A folder with data and artifacts, in which stages run as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FsspecArtifacts(str(folder / "artifacts"))
        random = np.random.default_rng(1)
        frame = tastes(random, USERS, ROWS).with_columns(at=1.6e9 + np.arange(ROWS) * 60.0)
        frame.write_parquet(folder / "ratings.parquet")
        genres = ["|".join(GENRES[[n % 4, (n // 4) % 4]]) if n else None for n in range(ITEMS)]
        pl.DataFrame({"movieId": range(ITEMS), "genres": genres}).write_parquet(folder / "films.parquet")
        self.recommender: dict[str, Any] = {
            "name": "films",
            "data": {
                "interactions": {"uri": str(folder / "ratings.parquet")},
                "items": {"uri": str(folder / "films.parquet"), "key": "movieId"},
            },
            "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
            "features": [{"categorify": ["userId", "movieId"]}, {"multi_hot": "genres", "separator": "|"}],
            "model": {"params": {"layers": [32, 32]}, "train": {"epochs": 8, "batch_size": 512}},
            "gates": [{"metric": "hr@5/20", "min": 0.1}, {"parity": 1e-5}],
        }

    def stage(self, name: str, run: str, inputs: dict[str, Files], **more: Any) -> tuple[subprocess.CompletedProcess[str], str]:
        attempt = f"{run}-{name}-1"
        spec = StageSpec(
            stage=name,  # type: ignore[arg-type]
            run=run,
            attempt=attempt,
            recommender=more.pop("recommender", self.recommender),
            inputs=inputs,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
            **more,
        )
        path = self.folder / attempt / "spec.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(spec.model_dump_json(by_alias=True))
        command = [sys.executable, "-m", f"pipelines.stages.{name}", "--spec", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False), attempt

    def run(self, run: str, inputs: dict[str, Files], mode: str = "full", **more: Any) -> dict[str, Manifest]:
        done: dict[str, Manifest] = {}
        for name in ("etl", "train", "evaluate", "export"):
            files = {stage: manifest.files for stage, manifest in done.items()}
            process, attempt = self.stage(name, run, inputs | files, mode=mode, **more)
            assert process.returncode == 0, process.stdout + process.stderr
            assert process.stderr == "", process.stderr
            manifest = self.store.manifest(attempt)
            assert manifest is not None and manifest.failure is None
            done[name] = manifest
        return done

    def fetch(self, manifest: Manifest, name: str) -> Path:
        return self.store.fetch(manifest.files[name], self.folder / "fetched" / manifest.run / name)
