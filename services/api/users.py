"""Forgetting users over HTTP."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from services.api.access import Caller, RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.ids import IdPath
from services.control.forgetting import Forgotten
from shared.domain.access import Role
from shared.domain.entity_ids import IdKind, IdKinds, IdReader, read_id
from shared.domain.errors import Invalid

room = RoleRouter("users")


class ForgottenView(BaseModel):
    recommender: str
    forgotten_at: datetime = Field(description="Data up to this time is forgotten; later data is that of a new user.")
    interactions: int = Field(description="Number of deleted interactions.")
    impressions: int = Field(description="Number of deleted impressions.")
    feature_values: int = Field(description="Number of deleted feature values.")
    versions: list[int] = Field(description="Versions that read their data before, and may have learned from the user.")
    collected_by: datetime = Field(description="When these versions are collected, unless one serves, or has a tag, a rollout or a run.")


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
    users = {name: keys for name in _names(parts, who, recommender) if (keys := _keys(parts, name, id))}
    if not users:
        raise Invalid("no recommender has users with such an id: check the kind of ids, integer or text, of your recommenders")
    return ForgottenViews(recommenders=[_view(name, [parts.forget(name, key) for key in keys]) for name, keys in users.items()])


def _view(name: str, forgotten: list[Forgotten]) -> ForgottenView:
    return ForgottenView(
        recommender=name,
        forgotten_at=forgotten[-1].at,
        interactions=sum(rows.interactions for rows in forgotten),
        impressions=sum(rows.impressions for rows in forgotten),
        feature_values=sum(rows.feature_values for rows in forgotten),
        versions=list(forgotten[-1].versions),
        collected_by=forgotten[-1].collected_by,
    )


def _names(parts: ControlParts, who: Caller, recommender: str | None) -> list[str]:
    if recommender is None:
        return [row.name for row in parts.recommenders.list() if who.sees(row.name)]
    who.enters(recommender)
    return [parts.recommenders.get(recommender).name]


def _keys(parts: ControlParts, name: str, id: str) -> list[int]:
    """Returns the user's key; none if the recommender's users have ids of another kind. While the kind is not fixed, the id can be both."""
    kind = parts.recommenders.get(name).ids.user
    kinds: list[IdKind] = ["integer", "text"] if kind is None else [kind]
    keys = []
    for kind in kinds:
        with suppress(Invalid):
            keys.append(IdReader(IdKinds(user=kind), parts.ids).user(read_id(id, kind)))
    return keys
