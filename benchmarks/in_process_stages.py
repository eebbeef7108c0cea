"""The platform's stages without a platform: one after the other in this process, or each as a process of its own, measured."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Watched, watched
from pipelines.stages import etl, evaluate, export, refit, train
from pipelines.stages.runner import Context
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest, StageName, StageSpec
from shared.stage_process import Outcome

_WORK: Mapping[StageName, Callable[[Context], Outcome]] = {
    "etl": etl.run,
    "train": train.run,
    "evaluate": evaluate.run,
    "refit": refit.run,
    "export": export.run,
}


@dataclass
class InProcessStages:
    """Runs stages in a folder, with an artifact store of its own."""

    folder: Path
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("stage"))
    count: int = 0
    """How many stages have run."""

    def __post_init__(self) -> None:
        self.store = FsspecArtifacts(str(self.folder / "artifacts"))

    def run(self, stage: StageName, recommender: RecommenderSpec, mode: str, inputs: Mapping[str, Files]) -> tuple[Files, Outcome]:
        """Returns what the stage has published, and its outcome."""
        self.count += 1
        scratch = self.folder / f"{self.count}-{stage}"
        scratch.mkdir()
        spec = StageSpec(
            stage=stage,
            run=f"run-{self.count}",
            attempt=f"run-{self.count}-{stage}-1",
            recommender=recommender,
            inputs=dict(inputs),
            mode=mode,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
        )
        outcome = _WORK[stage](Context(spec, scratch, self.store, self.log))
        return {name: self.store.put(path) for name, path in outcome.files.items()}, outcome


def films(
    interactions: Path,
    items: Path,
    users: Path | None = None,
    *,
    user: str = "userId",
    item: str = "movieId",
    time: str = "timestamp",
    **more: Any,
) -> dict[str, Any]:
    """A spec on ratings: a like is a rating from 4 on."""
    tables = {"items": (items, item), **({"users": (users, user)} if users else {})}
    return {
        "name": "films",
        "data": {
            "interactions": {"uri": str(interactions)},
            **{name: {"uri": str(path), "key": key} for name, (path, key) in tables.items()},
        },
        "schema": {"user": user, "item": item, "time": time, "label": {"column": "rating", "positive": ">= 4"}},
        "gates": [{"parity": 1e-4}],
        **more,
    }


def run_as_process(
    folder: Path, stage: StageName, recommender: RecommenderSpec, inputs: Mapping[str, Files] | None = None
) -> tuple[FsspecArtifacts, Manifest, Watched]:
    """Runs a stage as the platform does. Artifacts are in the folder, and data may be."""
    store = FsspecArtifacts(str(folder / "artifacts"))
    attempt = f"run-{sum(1 for _ in folder.glob('run-*')) + 1}-{stage}-1"
    spec = StageSpec(
        stage=stage,
        run=attempt,
        attempt=attempt,
        recommender=recommender,
        inputs=dict(inputs or {}),
        data_roots=(str(folder),),
        artifacts=store.url,
    )
    path = folder / attempt / "spec.json"
    path.parent.mkdir()
    path.write_text(spec.model_dump_json(by_alias=True))
    used = watched([sys.executable, "-m", f"pipelines.stages.{stage}", "--spec", str(path)])
    manifest = store.manifest(attempt)
    assert manifest is not None, f"{stage} '{attempt}' published nothing"
    return store, manifest, used
