"""Online feature values of a version: `online.json` with its files, and the definition of a view.

A view is a set of typed columns by the key of an entity; each row has an event time. A version publishes the rows of its training
(`online.VIEW.0000.npz` and so on, shared.serving.values_file). The control plane writes them to the feature store before the version takes
traffic. Clients write newer values to the view by the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shared.contracts.quantities import Duration
from shared.contracts.strict import Strict, unknown_name
from shared.domain.errors import Invalid
from shared.domain.feature_values import MOST_BYTES, VIEW, DataType, Stored, StoredRow, take

ONLINE = "online.json"
USERS = "users"
"""View of user features."""
AWAY = "away"
"""Metric label of a read that the store did not answer in time."""
MOST_COLUMNS, MOST_WIDTH = 256, 4096

ViewName = Annotated[str, Field(pattern=rf"^{VIEW}$")]


class OnlineColumn(Strict):
    name: str = Field(min_length=1, max_length=120, description="Name of the served unit's input.")
    dtype: DataType = Field(description="Data type: int64, float32 or string.")
    width: int | None = Field(None, ge=1, le=MOST_WIDTH, description="Maximum length of a list; null for a single value.")


class View(Strict):
    name: ViewName = Field(description="Name of the view: lower-case letters, digits and underscores.")
    entity: ViewName = Field("user", description="Entity of the keys: user, item, or any other name.")
    columns: tuple[OnlineColumn, ...] = Field(min_length=1, max_length=MOST_COLUMNS, description="Columns that are stored for each key.")
    ttl: Duration | None = Field(None, description="Maximum age of a value; older values count as absent. Absent: any age.")
    fitted: bool = Field(
        False, description="Whether only the version can interpret the values (codes of its vocabularies); clients cannot write them."
    )

    @model_validator(mode="after")
    def _check_names(self) -> View:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"view '{self.name}': two columns have the same name")
        return self

    def row(self, key: int, at: Any, values: Mapping[str, Any]) -> StoredRow:
        """Returns the row to store; raises Invalid for an unknown column or a wrong type."""
        columns = {column.name: column for column in self.columns}
        row_values: dict[str, Stored] = {}
        for name, value in values.items():
            if name not in columns:
                raise Invalid(f"view '{self.name}': {unknown_name('column', str(name)[:80], columns)}")
            converted = take(value, columns[name].dtype, columns[name].width, name)
            if converted is not None:
                row_values[name] = converted
        row = StoredRow(key, at, row_values)
        if len(row.text.encode()) > MOST_BYTES:
            raise Invalid(f"the values of key {key} take more than {MOST_BYTES} bytes")
        return row


class OnlineView(View):
    parts: tuple[str, ...] = Field((), description="Files with the rows that the version was published with, in this order.")
    rows: int = Field(0, ge=0, description="Number of rows in all files.")


class Online(Strict):
    version: Literal[1] = 1
    views: tuple[OnlineView, ...] = Field(description="Views from which the unit's inputs are read.")

    @model_validator(mode="after")
    def _check_views(self) -> Online:
        names = [view.name for view in self.views]
        if len(set(names)) < len(names):
            raise ValueError("two views have the same name")
        return self

    def view(self, name: str) -> OnlineView | None:
        return next((view for view in self.views if view.name == name), None)


def part_name(view: str, number: int) -> str:
    return f"online.{view}.{number:04d}.npz"


def history_name(view: str) -> str:
    """Returns the name of etl's input with all values of a view: JSON lines of key, at (microseconds since 1970) and values."""
    return f"{view}.jsonl"
