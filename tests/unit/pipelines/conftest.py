"""Runs the ETL stage's work in this process, on a data set in a temporary folder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pipelines.stages.etl import run
from pipelines.stages.runner import Context, Outcome
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec

Etl = Callable[..., Outcome]


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From then on the machine has so many bytes free."""
    return lambda size: monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size, total=size))


@pytest.fixture
def etl(tmp_path: Path) -> Etl:
    numbers = iter(range(100))

    def execute(recommender: RecommenderSpec, roots: tuple[str, ...] | None = None, **more: Any) -> Outcome:
        url = str(tmp_path / "artifacts")
        scratch = tmp_path / f"scratch-{next(numbers)}"
        scratch.mkdir()
        allowed = (str(tmp_path),) if roots is None else roots
        stage = StageSpec(stage="etl", run="r", attempt="r-etl-1", recommender=recommender, data_roots=allowed, artifacts=url, **more)
        return run(Context(stage, scratch, FsspecArtifacts(url), logging.getLogger("test")))

    return execute
