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
Encoding = Literal[
    "utf-8", "utf-16", "latin-1", "cp1250", "cp1251", "cp1252", "iso8859-2", "iso8859-15", "koi8-r", "shift_jis", "euc_kr", "gb18030"
]
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


class TextFormat(Strict):
    """Form of delimited text. What is not set is recognised from the first file."""

    separator: str | None = Field(None, min_length=1, max_length=4, description="Characters between the fields, such as ';' or '::'.")
    encoding: Encoding | None = Field(None, description="Encoding of the text.")
    decimal: Literal[".", ","] | None = Field(None, description="Decimal sign of numbers.")
    header: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] | None = Field(
        None, min_length=1, max_length=10_000, description="Names of all columns, for files without a header line."
    )

    @model_validator(mode="after")
    def _check_text(self) -> TextFormat:
        if self.separator is not None and any(not character.isprintable() and character != "\t" for character in self.separator):
            raise ValueError(f"separator: expected printable characters or a tab, got {self.separator!r}")
        if self.decimal == "," and self.separator == ",":
            raise ValueError("decimal: ',' also separates the fields; set another separator")
        if self.header is not None and len(set(self.header)) < len(self.header):
            raise ValueError("header: a name is listed twice")
        return self


class Place(Strict):
    """Either `uri`, or `query` and `from`."""

    contents: ClassVar[Contents] = "rows"

    uri: str | None = Field(
        None,
        description="Files: Parquet, CSV (.csv, .tsv, .txt, .dat), JSON lines (.jsonl, .ndjson), text with types in the header (.inter, "
        ".item, .user) or TFRecord. A path, a glob or a folder, absolute or relative, under one of the operator's data roots, or "
        "s3://BUCKET/KEY under one of them. A folder with the log of a Delta or Iceberg table is that table.",
    )
    csv: TextFormat = Field(
        TextFormat(),
        exclude_if=lambda settings: settings == TextFormat(),
        description="Form of delimited text, if it is not recognised rightly.",
    )
    version: int | None = Field(
        None,
        ge=0,
        le=2**63 - 1,
        exclude_if=lambda version: version is None,
        description="Version of the Delta table, or snapshot id of the Iceberg table; default: the newest.",
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
        if self.query is not None and self.csv != TextFormat():
            raise ValueError("csv: a query has no text; leave it out")
        if self.version is not None and (self.uri is None or self.contents != "rows"):
            raise ValueError("version: only Delta and Iceberg tables have versions; remove it")
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
