"""The spec's `data`: sources of interactions, items and users."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from shared.contracts.columns import Column
from shared.contracts.quantities import Duration
from shared.contracts.sources import Place
from shared.contracts.strict import Strict, without_default
from shared.contracts.validation import Validate, ValidateTable


class Fewest(Strict):
    user: int = Field(1, ge=1, description="Minimum number of interactions per user, with the items that remain.")
    item: int = Field(1, ge=1, description="Minimum number of interactions per item, with the users that remain.")


def _of_users(value: Any) -> Any:
    return {"user": value} if isinstance(value, int) else value


class Interactions(Place):
    also: Literal["events"] | None = Field(None, description="`events` adds the platform's own feedback to the file.")
    since: Duration | None = Field(None, description="Length of the newest part of the data that is used; all if absent.")
    duplicates: Literal["all", "first", "last"] = Field(
        "all",
        description="Interactions of a user with the same item that are used. With `first` and `last`, rows are sorted by user and time.",
    )
    min_interactions: Annotated[Fewest, BeforeValidator(_of_users, json_schema_input_type=int | Fewest)] = Field(
        Fewest(),
        description="Minimum number of interactions of a user, or of users and items; those with fewer are left out.",
        json_schema_extra=without_default,
    )


class Table(Place):
    """Source of a table that has one row for each key."""

    key: Column = Field(description="Column that joins the table with the interactions.")
    validate_: ValidateTable = Field(
        ValidateTable(),
        alias="validate",
        exclude_if=lambda settings: settings == ValidateTable(),
        description="Checks of the rows before they are used.",
    )


class Data(Strict):
    interactions: Interactions = Field(description="Interactions of users with items.")
    items: Table | None = Field(
        None, description="Attributes of the items: the catalogue. Absent: the items are those of the interactions, without attributes."
    )
    users: Table | None = Field(None, description="Attributes of the users. Users who are not in the table stay, with null attributes.")
    validate_: Validate = Field(Validate(), alias="validate", description="Checks of the interactions before training.")

    def places(self) -> dict[str, Place]:
        """Returns all data sources, by field."""
        named: dict[str, Place | None] = {"interactions": self.interactions, "items": self.items, "users": self.users}
        return {name: place for name, place in named.items() if place is not None}
