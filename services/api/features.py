"""Feature values of users over HTTP: the views that serving versions read, the stored values of a key, and newer values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, FailFast, Field, WithJsonSchema

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.ids import IdPath, reader_of, user_in_path
from services.api.rate_limits import BULK
from shared.contracts.events import ID_SCHEMA, Id
from shared.contracts.online import OnlineColumn, OnlineView, View
from shared.contracts.quantities import write_duration
from shared.domain.access import Role
from shared.domain.errors import Conflict, Invalid, no_such
from shared.domain.feature_values import EARLY, VIEW, DataType, StoredRow, own_place, version_of
from shared.telemetry import metrics

room = RoleRouter("features")

MOST_AT_ONCE = 5_000
ViewPath = Annotated[str, Path(pattern=rf"^{VIEW}$", description="The view's name.")]
_Scalar = int | float | str
_Said = dict[str, _Scalar | list[_Scalar | None]]


class ColumnView(BaseModel):
    name: str = Field(description="Name of the model's input.")
    dtype: DataType = Field(description="Data type: int64, float32 or string.")
    width: int | None = Field(description="Longest list of values; null for a single value.")


class FeatureView(BaseModel):
    name: str
    entity: str = Field(description="Entity of the keys, such as user.")
    columns: list[ColumnView] = Field(description="Columns that are stored for each key.")
    ttl: str | None = Field(description="Longest age of a value; null for any age.")
    fitted: bool = Field(description="Whether each version makes the values itself; clients cannot write them.")
    version: int = Field(description="Version that reads this view.")
    rows: int = Field(description="Number of rows that the version was published with.")
    loaded: bool = Field(description="Whether all these rows are in the feature store.")


class FeatureViews(BaseModel):
    views: list[FeatureView] = Field(description="Views that the stable version and the candidate read.")


class FeatureRow(BaseModel):
    version: int | None = Field(description="Version that was published with the row; null for a row that a client wrote.")
    at: datetime = Field(description="Event time of the row.")
    expired: bool = Field(description="Whether the row is older than the view's TTL; it then counts as absent.")
    values: _Said = Field(description="Values by column; empty for an expired row.")


class KeyFeatures(BaseModel):
    key: Annotated[int | str, WithJsonSchema(ID_SCHEMA)] = Field(description="Id of the request.")
    rows: list[FeatureRow] = Field(description="Rows, the newest first; a column that a row lacks is taken from the next row.")


class RowWrite(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: Id = Field(description="Id of the user.")
    at: AwareDatetime | None = Field(None, description="Event time; now, if absent.")
    values: dict[str, Any] = Field(description="Values by column; null for an unknown value. The row has all that is known at its time.")


class RowWrites(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rows: Annotated[list[RowWrite], FailFast(), Field(max_length=MOST_AT_ONCE, description="Rows, in any order.")]


class RowsWritten(BaseModel):
    accepted: int
    standing: int = Field(description="Number of rows that became the newest of their key.")


class Materialised(BaseModel):
    views: int = Field(description="Number of views that are loaded again.")


@room.get("/v1/features/{name}", Role.VIEWER)
def list_features(parts: With, name: str) -> FeatureViews:
    """Lists the views that the serving versions read. Empty if they need only keys, items and the request."""
    listed = [_view(parts, name, version, view) for version, views in _views(parts, name).items() for view in views]
    return FeatureViews(views=listed)


@room.post("/v1/features/{name}:materialise", Role.OPERATOR)
def materialise_features(parts: With, who: Who, name: str) -> Materialised:
    """Loads all features of a recommender into the feature store again, while the stored rows stay. For stores that were changed by
    hand."""
    parts.recommenders.get(name)
    return Materialised(views=parts.features.again(name))


@room.put("/v1/features/{name}/{view}", Role.OPERATOR, work=BULK)
def put_features(parts: With, who: Who, name: str, view: ViewPath, body: RowWrites) -> RowsWritten:
    """Writes feature values. The newest event time of each key counts, in any order of rows; repeated rows change nothing. Writes all or
    none, but leaves out rows of users who were forgotten later."""
    wanted = _writable(_views(parts, name), name, view)
    now = parts.clock.now()
    ids = reader_of(parts, name, user=body.rows[0].key if body.rows else None)
    rows = [_row(wanted, number, ids.user(row.key, f"rows.{number}.key"), row, now) for number, row in enumerate(body.rows)]
    parts.recommenders.fix_ids(name, ids.kinds)
    standing = parts.features.write(name, view, rows)
    metrics.FEATURES_WRITTEN.labels(name, view).inc(len(rows))
    return RowsWritten(accepted=len(rows), standing=standing)


@room.get("/v1/features/{name}/{view}/{key:path}", Role.OPERATOR)
def get_features(parts: With, name: str, view: ViewPath, key: IdPath) -> KeyFeatures:
    """Returns what versions read of the user now, as far as the feature store has it."""
    id, user = user_in_path(parts, name, key)
    places: dict[str, timedelta | None] = {}
    for version, views in _views(parts, name).items():
        for online_view in views:
            if online_view.name == view:
                places |= {own_place(view, version): online_view.ttl} | ({} if online_view.fitted else {view: online_view.ttl})
    if not places:
        raise no_such("view", view)
    stored = parts.features.store.read(name, places, [user], parts.clock.now())
    rows = [_feature_row(place, row.at, row) for (place, _), row in stored.rows.items()]
    rows += [_feature_row(place, at, None) for (place, _), at in stored.expired.items()]
    if not rows:
        raise no_such("key", str(key))
    return KeyFeatures(key=id, rows=sorted(rows, key=lambda row: (row.at, row.version or 0), reverse=True))


def _views(parts: ControlParts, name: str) -> Mapping[int, Sequence[OnlineView]]:
    """Returns the views by version, the stable version first."""
    parts.recommenders.get(name)
    route = parts.routes.get(name)
    if route is None:
        raise Conflict(f"recommender '{name}' serves nothing yet: its views are known when a version serves")
    return {version: parts.features.views(name, version) for version in sorted(route.named(), key=lambda number: number != route.stable)}


def _writable(views: Mapping[int, Sequence[OnlineView]], name: str, view: str) -> View:
    """Returns the view with the columns of all versions that read it; if types differ, the stable version's counts."""
    matching = [online_view for version_views in views.values() for online_view in version_views if online_view.name == view]
    if not matching:
        raise no_such("view", view)
    if all(online_view.fitted for online_view in matching):
        raise Invalid(f"view '{view}' has values that each version of '{name}' makes itself: clients cannot write them")
    columns: dict[str, OnlineColumn] = {}
    for online_view in matching:
        if not online_view.fitted:
            columns = {column.name: column for column in online_view.columns} | columns
    return View(name=view, entity=matching[0].entity, columns=tuple(columns.values()))


def _row(view: View, number: int, key: int, write: RowWrite, now: datetime) -> StoredRow:
    at = write.at or now
    if at > now + EARLY:
        raise Invalid(f"rows.{number}: time {at.isoformat()} is in the future; nothing of this request was written")
    try:
        return view.row(key, at, write.values)
    except Invalid as error:
        raise Invalid(f"rows.{number}: {error}; nothing of this request was written") from None


def _view(parts: ControlParts, name: str, version: int, view: OnlineView) -> FeatureView:
    columns = [ColumnView(**column.model_dump()) for column in view.columns]
    ttl = None if view.ttl is None else write_duration(view.ttl)
    loaded = parts.features.loaded(name, version)
    rest = {"name": view.name, "entity": view.entity, "fitted": view.fitted, "rows": view.rows}
    return FeatureView(columns=columns, ttl=ttl, version=version, loaded=loaded, **rest)


def _feature_row(place: str, at: datetime, row: StoredRow | None) -> FeatureRow:
    values = {} if row is None else {name: list(value) if isinstance(value, tuple) else value for name, value in row.values.items()}
    return FeatureRow(version=version_of(place), at=at, expired=row is None, values=values)
