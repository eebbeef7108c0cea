"""Interface of a stage: its input (spec.json) and its output (manifest.json), the only contract between services and pipelines."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import Strict
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.gate import Silence

StageName = Literal["etl", "train", "evaluate", "refit", "export", "verify"]


FORGOTTEN_USERS = "forgotten.json"
"""Input of etl: digests of forgotten users with their times (microseconds since 1970), and the secret of the digests."""
LEFT_OUT = "forgotten_users"
"""Fact of etl: number of users in the ledger of forgotten users that it left out; absent without a ledger."""
FORGOTTEN_FACT = "forgotten"
"""Fact of a stage that removes forgotten users from the archive: their digests and times, as in its input."""
ID_KEY = "id.key"
"""Input of etl: the key of the hash of text ids, in hexadecimal digits."""
FULL = 4
"""Exit code of a stage whose disk rejects writes."""


class File(Strict):
    """Published file: digest and size of its content."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)


Files = dict[str, File]


def digest_of(files: Files) -> str:
    """Returns the digest of a set of files; other names or other content give another digest."""
    content = "\n".join(f"{name} {file.sha256}" for name, file in sorted(files.items()))
    return hashlib.sha256(content.encode()).hexdigest()


class LoggedAnswers(Strict):
    """Logged answers, of a version and a time range, for off-policy estimates."""

    version: int = Field(ge=1, description="The version that serves.")
    since: datetime
    until: datetime = Field(description="Time when the log was read: later answers and positives do not count.")


class StageSpec(Strict):
    """One attempt of one stage. `inputs` are files of earlier stages, of the warm parent, or of the serving version."""

    version: Literal[1] = 1
    stage: StageName
    run: str
    attempt: str = Field(description="`{run}-{stage}-{n}`: name of the Job, and fence of the published files.")
    recommender: RecommenderSpec
    inputs: dict[str, Files] = Field(
        default_factory=dict,
        description="Input files by origin: 'etl', 'train' (for export: files of the refit), 'export', 'events', 'features' (user values "
        "written by clients), 'parent' (warm start), 'serving' (for the comparison), 'serving_before_refit' (features and model of the "
        "last full run of the serving version's line, before its refit), 'accepted' (profile of the data of the last version), 'encoded' "
        "(vectors of an earlier etl), 'ids' (the key of the hash of text ids), 'forgotten' (digests of forgotten users); 'answers' "
        "(impressions and positives by day, for off-policy estimates); to compact: 'days' (stored events) and 'parts' (days that are "
        "already written).",
    )
    events_since: datetime | None = Field(None, description="Events before this time are left out; absent: none are.")
    mode: Literal["full", "warm", "compact", "forget"] = Field(
        "full",
        description="`compact`: etl writes days of events as Parquet, without a run; `forget`: etl writes these files again without "
        "forgotten users.",
    )
    ids: IdKinds = Field(UNFIXED, description="Kinds of the recommender's ids, as far as they are fixed.")
    answers: LoggedAnswers | None = Field(None, description="Logged answers for evaluate, if a gate needs an off-policy estimate.")
    attributes: tuple[str, ...] | None = Field(None, description="Attributes of the recommender's catalogue; absent: not known.")
    data_roots: tuple[str, ...] = Field((), description="The operator's allow-list of data roots: sources must be under one of them.")
    families: tuple[str, ...] = Field((), description="The operator's allow-list of modules for custom families (`module:Class`).")
    artifacts: str = Field(description="fsspec URL of the artifact store.")


class Failure(Strict):
    """Why a stage rejected its input: the user must fix `data` and `spec` faults, and they are never retried."""

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
        default_factory=dict, description="Numbers by name: 'candidate.hr@10', 'popularity.auc', 'rows.train', ..."
    )
    facts: dict[str, Any] = Field(default_factory=dict, description="Facts for people and lineage: versions, seeds, digests of inputs.")
    failure: Failure | None = None

    def silence(self) -> Silence:
        """Returns the reasons for missing numbers."""
        return Silence(*(_texts(self.facts.get(name)) for name in (MISSING, BROKEN)))


MISSING, BROKEN = "not_measured", "couldnt_be_measured"
"""Facts with the reasons for missing numbers: not measured, or measurement failed. Keys are the number's name, or its owner."""


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(why) for name, why in value.items()} if isinstance(value, dict) else {}
