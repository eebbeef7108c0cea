"""The work of the ETL stage in the test's own process, on a data set in a temporary folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from pipelines.stages.etl import run
from pipelines.stages.runner import Context
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Manifest, StageSpec
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


def assert_same_etl(store: FsspecArtifacts, first: Manifest, second: Manifest, folder: Path, several_parts: bool = False) -> None:
    """Compares files byte for byte, state among them, and rows of the features. `several_parts`: of history too only the rows are compared,
    because polars writes many rows in parts of any length."""
    assert sorted(first.files) == sorted(second.files)
    unlike = {name for name, file in first.files.items() if file.sha256 != second.files[name].sha256}
    assert unlike <= {"train.parquet", "holdout.parquet", *(("history.parquet", "firsts.parquet") if several_parts else ())}, unlike
    for name in unlike | {"train.parquet", "holdout.parquet"}:
        ours, theirs = (pl.read_parquet(store.fetch(made.files[name], folder / f"{made.attempt}.{name}")) for made in (first, second))
        assert ours.schema == theirs.schema
        assert name in ("history.parquet", "firsts.parquet") or any(column.startswith("f.") for column in ours.columns)
        assert_frame_equal(ours, theirs, rel_tol=1e-6, abs_tol=0)
    assert first.facts["cardinalities"] == second.facts["cardinalities"]
