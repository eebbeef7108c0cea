"""Protocol of `eyas data` with its worker process: one request as JSON on stdin, one response as JSON on stdout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shared.contracts.strict import Strict
from shared.contracts.validation_report import Report

MODULE = "pipelines.data"


class ValidateRequest(Strict):
    """`source`: a spec, or a data file; columns that are not given are found by name."""

    source: str
    roots: tuple[str, ...] = Field(description="Below these relative paths are looked for, and what lies elsewhere isn't read.")
    columns: dict[Literal["user", "item", "time", "label"], str] = Field(default_factory=dict)
    positive: str = ">= 4"
    against: str | None = Field(None, description="The profile.json of an accepted batch.")
    folder: str | None = Field(None, description="Where everything is written that a run would publish of it.")


class Validated(Strict):
    report: Report
    refusal: str | None = Field(description="Why a run would stop.")


class Synth(Strict):
    name: str = Field(description="Of the data set whose shape is wanted.")
    to: str = Field(description="The folder to write to.")
    rows: int | None = Field(None, description="Of the interactions; as many as the real one has when absent.")
    seed: int = Field(0, ge=0, description="Another seed, other rows.")
    parquet: bool = Field(False, description="Parquet in place of the makers' layout.")


class Convert(Strict):
    source: str = Field(description="A file, a folder, a glob, or s3://BUCKET/KEY.")
    to: str = Field(description="The file to write; the folder, for a data set.")
    name: str | None = Field(None, description="The data set that the source is.")
    short: dict[str, str] = Field(default_factory=dict, description="TFRecord: features by column.")
    batch: int | None = Field(None, ge=1, le=1 << 20, description="TFRecord: rows an Example.")
    grouped: bool = Field(False, description="TFRecord: columns grouped by type.")
    narrow: bool = Field(False, description="TFRecord: fractions may lose what float32 doesn't hold.")


class Written(Strict):
    rows: dict[str, int] = Field(description="By file.")


class Download(Strict):
    name: str = Field(description="Of the data set.")
    to: str = Field(description="The folder to unpack in.")


class Downloaded(Strict):
    folder: str
    bytes: int
    sha256: str
    licence: str


class Describe(Strict):
    uri: str = Field(description="A file, a folder, a glob, or s3://BUCKET/KEY.")
    top: int = Field(5, ge=0, le=100, description="How many of the most frequent values.")


class Described(Strict):
    class Column(Strict):
        name: str
        type: str
        nulls: int
        min: Any = None
        max: Any = None
        distinct: int | None = Field(None, description="None for what isn't counted: records within records.")
        estimated: bool = Field(False, description="Whether there are too many to be counted one by one.")
        shortest: int | None = Field(None, description="Of lists.")
        longest: int | None = None
        top: tuple[tuple[Any, int], ...] = Field((), description="The most frequent values, and their rows.")

    uri: str
    rows: int
    columns: tuple[Column, ...]


class Answer(Strict):
    """Either the result, or the error in one line with an exit code: 2 means that the user can fix it, 1 any other error."""

    found: dict[str, Any] = Field(default_factory=dict)
    fault: str | None = None
    code: int = 0
