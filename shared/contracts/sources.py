"""Sources of rows: files under the operator's roots, or a query of one of the operator's databases."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from shared.contracts.columns import Column
from shared.contracts.entries import written
from shared.contracts.strict import Strict
from shared.domain.sql import not_one_select

_DATABASE = r"[a-z][a-z0-9-]{0,39}"
Contents = Literal["rows", "encoder", "images"]
DatabaseName = Annotated[
    str,
    written(_DATABASE, "the name of a database: lower-case letters, digits and dashes, at most 40, beginning with a letter"),
    Field(json_schema_extra={"pattern": f"^{_DATABASE}$"}),
]


def _one_select(query: str) -> str:
    fault = not_one_select(query)
    if fault:
        raise ValueError(fault)
    return query


class Place(Strict):
    """Either `uri`, or `query` and `from`."""

    contents: ClassVar[Contents] = "rows"

    uri: str | None = Field(
        None,
        description="Files: Parquet, CSV, tab-separated text (.tsv, or .inter, .item, .user with types in the header) or TFRecord. A path, "
        "a glob or a folder, absolute or relative, under one of the operator's data roots, or s3://BUCKET/KEY under one of them.",
    )
    query: Annotated[str, AfterValidator(_one_select)] | None = Field(
        None, description="One SELECT on the database that `from` names, instead of files."
    )
    database: DatabaseName | None = Field(None, alias="from", description="Name of one of the operator's databases.")
    names: dict[Column, Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        {}, description="Names of columns in the source that differ from the spec's names: `{userId: u}`."
    )

    @model_validator(mode="after")
    def _check_place(self) -> Place:
        if (self.uri is None) == (self.query is None):
            raise ValueError("set either uri, or query and from" + (", not both" if self.uri is not None else ""))
        if (self.query is None) != (self.database is None):
            missing = "'from' is missing; set the name of a database" if self.query is not None else "'query' is missing; 'from' needs it"
            raise ValueError(missing)
        doubled = sorted({name for name in self.names.values() if list(self.names.values()).count(name) > 1})
        if doubled:
            raise ValueError(f"names: two columns have the name '{doubled[0]}'")
        return self

    @property
    def label(self) -> str:
        """Name of the source in messages."""
        return self.uri if self.uri is not None else f"query of {self.database}"


class EncoderFile(Place):
    """Model that encodes rows."""

    contents: ClassVar[Contents] = "encoder"


class ImagesFolder(Place):
    """Folder of the images that rows name."""

    contents: ClassVar[Contents] = "images"
