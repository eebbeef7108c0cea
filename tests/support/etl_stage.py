"""The work of the ETL stage in the test's own process, on a data set in a temporary folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from pipelines.stages.etl import run
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.stage_process import Outcome

Etl = Callable[..., Outcome]


def etl_stage(folder: Path) -> Etl:
    """Each call runs the stage in a scratch folder of its own; artifacts are shared."""
    numbers = count()

    def execute(recommender: RecommenderSpec, roots: tuple[str, ...] | None = None, **more: Any) -> Outcome:
        url = str(folder / "artifacts")
        scratch = folder / f"scratch-{next(numbers)}"
        scratch.mkdir()
        allowed = (str(folder),) if roots is None else roots
        stage = StageSpec(stage="etl", run="r", attempt="r-etl-1", recommender=recommender, data_roots=allowed, artifacts=url, **more)
        return run(Context(stage, scratch, FsspecArtifacts(url), logging.getLogger("test")))

    return execute
