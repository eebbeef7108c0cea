"""The platform's stages in this process, one after the other, without a platform: what benchmarks of many retrainings run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.stages import etl, evaluate, export, refit, train
from pipelines.stages.runner import Context
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, StageName, StageSpec
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
        """What the stage has published, and its outcome."""
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
