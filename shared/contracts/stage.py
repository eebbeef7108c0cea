"""What a stage is told (spec.json) and what it answers (manifest.json): the only words between services and pipelines."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import Strict

StageName = Literal["etl", "train", "evaluate", "export", "verify"]


class File(Strict):
    """A published file: its content's address and size."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


Files = dict[str, File]


def digest_of(files: Files) -> str:
    """The address of a set of files: other names or other content have another one."""
    content = "\n".join(f"{name} {file.sha256}" for name, file in sorted(files.items()))
    return hashlib.sha256(content.encode()).hexdigest()


class StageSpec(Strict):
    """One attempt of one stage. `inputs` are files of earlier stages, of the warm parent, or of the serving version."""

    version: Literal[1] = 1
    stage: StageName
    run: str
    attempt: str = Field(description="`{run}-{stage}-{n}`: names the Job, and fences what it publishes.")
    recommender: RecommenderSpec
    inputs: dict[str, Files] = Field(
        default_factory=dict,
        description="By origin: 'etl', 'train', 'evaluate', 'export', 'events', 'features' (what was written of users), "
        "'parent' (warm start), 'serving' (to compare with), "
        "'accepted' (what is remembered of the data that the last version learned from), 'encoded' (vectors that an earlier etl has made); "
        "to compact: 'days' (what is stored) and 'parts' (what of it is written already).",
    )
    mode: Literal["full", "warm", "compact"] = Field(
        "full", description="`compact`: etl writes days of events as Parquet, and is of no run."
    )
    data_roots: tuple[str, ...] = Field((), description="The operator's allow-list: sources must lie under one of these.")
    artifacts: str = Field(description="fsspec URL of the artifact store.")


class Failure(Strict):
    """Why a stage refused: `data` and `spec` faults are the user's to mend and are never tried again."""

    kind: Literal["data", "spec", "crash"]
    message: str


class Manifest(Strict):
    version: Literal[1] = 1
    stage: StageName
    run: str
    attempt: str
    started: datetime
    ended: datetime
    files: Files = Field(default_factory=dict)
    metrics: dict[str, float] = Field(
        default_factory=dict, description="Flat numbers: 'candidate.hr@10', 'popularity.auc', 'rows.train', ..."
    )
    facts: dict[str, Any] = Field(
        default_factory=dict, description="Small facts for people and lineage: versions, seeds, digests of inputs."
    )
    failure: Failure | None = None
