"""Type of a column name in a spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.contracts.entries import written

COLUMN = r"[A-Za-z_][A-Za-z0-9_]{0,119}"
Column = Annotated[
    str,
    written(COLUMN, "a column's name: letters, digits and underscores, at most 120, not beginning with a digit"),
    Field(json_schema_extra={"pattern": f"^{COLUMN}$"}),
]
