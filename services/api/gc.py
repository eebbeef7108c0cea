"""Garbage collection on request; it also runs at the operator's interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import Room
from services.api.dependencies import With
from services.api.rate_limits import HEAVY
from shared.domain.access import Role

room = Room("operations")


class CollectedVersion(BaseModel):
    recommender: str
    version: int


class Collection(BaseModel):
    dry_run: bool
    versions: list[CollectedVersion] = Field(description="Their files are given up; number, metrics and lineage stay.")
    attempts: list[str] = Field(description="Of ended runs: what they published is given up.")
    blobs: int = Field(description="Files that go to the trash.")
    bytes: int
    restored: int = Field(description="What came back from the trash, since it is named by now.")
    erased: int = Field(description="What had lain in the trash long enough and is gone for good.")
    erased_bytes: int
    rows: int = Field(description="Entries that were forgotten of the index of reusable stages and of repeated requests.")


@room.create("/v1/gc", Role.ADMIN, scoped=False, work=HEAVY)
def collect_garbage(parts: With, dry_run: Annotated[bool, Query(description="Only say what would go in the end.")] = False) -> Collection:
    """Collects garbage of all recommenders at once, because they share files. Scoped tokens can't start it."""
    done = parts.collect(dry_run)
    versions = [CollectedVersion(recommender=name, version=number) for name, number in done.versions]
    return Collection(
        dry_run=dry_run,
        versions=versions,
        attempts=done.attempts,
        blobs=done.blobs,
        bytes=done.bytes,
        restored=done.restored,
        erased=done.erased,
        erased_bytes=done.erased_bytes,
        rows=done.rows,
    )
