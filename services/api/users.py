"""Forgetting users over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.ids import IdPath, user_in_path
from shared.domain.access import Role
from shared.domain.errors import Invalid

room = RoleRouter("users")


class ForgottenView(BaseModel):
    recommender: str
    forgotten_at: datetime = Field(description="Data up to this time is forgotten; later data is that of a new user.")
    interactions: int = Field(description="Number of deleted interactions.")
    impressions: int = Field(description="Number of deleted impressions.")
    feature_values: int = Field(description="Number of deleted feature values.")
    versions: list[int] = Field(description="Versions that read their data before, and may have learned from the user.")
    collected_by: datetime = Field(description="When these versions are collected, unless one still serves, or something names it.")


class ForgottenViews(BaseModel):
    recommenders: list[ForgottenView]


@room.delete("/v1/users/{id:path}", Role.OPERATOR, private=True)
def forget_user(
    parts: With,
    who: Who,
    id: IdPath,
    recommender: Annotated[str | None, Query(description="Forgets the user in this recommender only; default: in all.")] = None,
) -> ForgottenViews:
    """Forgets a user. Deletes events, answers and feature values at once; the daily files of events are written again within minutes. Later
    trainings leave the user out, also rows that data sources still have. The named versions are collected by a deadline, but not while one
    serves: then start a full run. Can be repeated. The audit log has a keyed hash in place of the id."""
    users = [(name, key) for name in _names(parts, who, recommender) if (key := _key(parts, name, id)) is not None]
    if not users:
        raise Invalid("no recommender has users with such an id: check the kind of ids, integer or text, of your recommenders")
    views = []
    for name, key in users:
        forgotten = parts.forget(name, key)
        views.append(
            ForgottenView(
                recommender=name,
                forgotten_at=forgotten.at,
                interactions=forgotten.interactions,
                impressions=forgotten.impressions,
                feature_values=forgotten.feature_values,
                versions=list(forgotten.versions),
                collected_by=forgotten.collected_by,
            )
        )
    return ForgottenViews(recommenders=views)


def _names(parts: ControlParts, who: Caller, recommender: str | None) -> list[str]:
    if recommender is None:
        return [row.name for row in parts.recommenders.list() if who.sees(row.name)]
    who.enters(recommender)
    return [parts.recommenders.get(recommender).name]


def _key(parts: ControlParts, name: str, id: str) -> int | None:
    """Returns None if the recommender's users have ids of another kind, or none yet."""
    if parts.recommenders.get(name).ids.user is None:
        return None
    try:
        return user_in_path(parts, name, id)[1]
    except Invalid:
        return None
