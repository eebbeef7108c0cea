"""Format of backups: documents that name the dump of a database and its artifacts, and a ledger of forgotten users."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from shared.contracts.stage import File
from shared.contracts.strict import Strict

DatabaseKind = Literal["sqlite", "postgresql"]
NAME = r"[0-9]{8}T[0-9]{6}Z"
"""A backup's name is its moment in UTC."""
_PATH = Annotated[str, StringConstraints(pattern=r"^(manifests/[a-z0-9][a-z0-9-]{0,120}\.json|logs/[a-z0-9][a-z0-9-]{0,120}\.txt)$")]


class Tables(Strict):
    revision: str = Field(description="Revision of the tables.")
    readable_by: str = Field(description="Oldest revision whose code can use the tables.")


class DatabaseDump(Strict):
    kind: DatabaseKind
    tables: Tables
    file: File


class Backup(Strict):
    version: Literal[1] = 1
    at: datetime = Field(description="Moment of the backup: it has everything that the database had before.")
    installation: str = Field(description="Installation that was backed up: a digest of its key of text ids.")
    database: DatabaseDump
    files: dict[_PATH, File] = Field(description="Manifests and logs of attempts, by their path in the artifact store.")
    blobs: tuple[File, ...] = Field(description="Content that the manifests and the registered versions name.")
    missing: tuple[str, ...] = Field(
        (), description="Digests of content, and paths of manifests, that were missing or damaged in the artifact store already."
    )

    @property
    def name(self) -> str:
        return name_of(self.at)

    def contents(self) -> dict[str, int]:
        """Returns the size of all content by digest."""
        named = (self.database.file, *self.files.values(), *self.blobs)
        return {file.sha256: file.size for file in named}


_USER = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
ForgottenTimes = Mapping[str, Mapping[str, datetime]]
"""Time of each user's forgetting, by recommender and digest of the user."""


class ForgottenLedger(Strict):
    """Users who were forgotten until the newest backup: a restore of an older one forgets them again. Only who has the secret of the
    installation, which is in its database and its dumps, can find out whether an id is in it."""

    version: Literal[1] = 1
    installation: str
    users: dict[str, dict[_USER, AwareDatetime]] = Field(default_factory=dict)

    def joined(self, users: ForgottenTimes) -> ForgottenLedger:
        """Returns a ledger with these users too; the newer time of a user counts."""
        joined = {recommender: dict(times) for recommender, times in self.users.items()}
        for recommender, times in users.items():
            older = joined.setdefault(recommender, {})
            older |= {digest: max(at, older.get(digest, at)) for digest, at in times.items()}
        return self.model_copy(update={"users": joined})


def name_of(at: datetime) -> str:
    return at.strftime("%Y%m%dT%H%M%SZ")
