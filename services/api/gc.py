"""Garbage collection on request; it also runs at the operator's interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import RoleRouter
from services.api.dependencies import With
from services.api.rate_limits import HEAVY
from shared.domain.access import Role

room = RoleRouter("operations")


class CollectedVersion(BaseModel):
    recommender: str
    version: int


class Collection(BaseModel):
    dry_run: bool
    versions: list[CollectedVersion] = Field(description="Versions whose files are removed; number, metrics and lineage stay.")
    attempts: list[str] = Field(description="Attempts of ended runs whose artifacts are removed.")
    blobs: int = Field(description="Number of files that move to the trash.")
    bytes: int
    restored: int = Field(description="Number of files that came back from the trash, because something refers to them again.")
    erased: int = Field(description="Number of files that were erased from the trash.")
    erased_bytes: int
    rows: int = Field(description="Number of deleted entries of stage reuse and of stored answers.")


@room.create("/v1/gc", Role.ADMIN, scoped=False, work=HEAVY)
def collect_garbage(parts: With, dry_run: Annotated[bool, Query(description="Only report what would be collected.")] = False) -> Collection:
    """Collects garbage of all recommenders at once, because they share files. Scoped tokens can't start it."""
    done = parts.collect(dry_run)
    versions = [CollectedVersion(recommender=name, version=number) for name, number in done.versions]
    return Collection(**vars(done) | {"dry_run": dry_run, "versions": versions})
