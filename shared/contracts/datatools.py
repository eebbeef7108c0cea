"""Protocol of `eyas data` with its worker process: one request as JSON on stdin, one response as JSON on stdout."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import Strict
from shared.contracts.validation_report import Report

MODULE = "pipelines.data"


class ValidateRequest(Strict):
    """`source`: a spec, or a data file; columns that are not given are found by name."""

    source: str
    roots: tuple[str, ...] = Field(description="Data roots: relative paths are resolved below them, and files outside them are not read.")
    columns: dict[Literal["user", "item", "time", "label"], str] = Field(default_factory=dict)
    positive: str = ">= 4"
    against: str | None = Field(None, description="The profile.json of an accepted batch.")
    folder: str | None = Field(None, description="Folder for the files that a run would publish.")


class Validated(Strict):
    report: Report
    refusal: str | None = Field(description="Reason why a run would stop.")


class CheckRequest(Strict):
    spec: RecommenderSpec
    roots: tuple[str, ...] = Field(description="Data roots: relative paths are resolved below them.")


class CheckedSpec(Strict):
    faults: tuple[tuple[str, str], ...] = Field(description="Field and message of each fault that a run would stop at.")
    unknown_attributes: tuple[tuple[str, str], ...] = Field(
        description="Field and message of each attribute of filters and rules that the items table lacks; clients may write it."
    )
    absent_values: tuple[tuple[str, str], ...] = Field(
        (), description="Field and message of each text that a filter or rule looks for and no item of the data has."
    )
    report: Report | None = Field(description="Report of the rows; null if they were not read.")


class DraftRequest(Strict):
    files: tuple[str, ...] = Field(min_length=1, max_length=3, description="Files of interactions, items and users, in any order.")
    uris: tuple[str, ...] = Field(description="How the spec names each file.")
    name: str = Field(description="Name of the recommender.")
    columns: dict[Literal["user", "item", "time", "label"], str] = Field(default_factory=dict)
    time_format: str | None = None
    positive: str | None = None


class Draft(Strict):
    text: str = Field(description="The spec.")
    guesses: tuple[str, ...] = Field(description="What was recognised, one line each.")


class Synth(Strict):
    name: str = Field(description="Data set whose shape is imitated.")
    to: str = Field(description="Output folder.")
    rows: int | None = Field(None, description="Number of interactions; as many as in the real data set if absent.")
    seed: int = Field(0, ge=0, description="Seed of the rows.")
    parquet: bool = Field(False, description="Writes Parquet instead of the original layout.")


class Convert(Strict):
    source: str = Field(description="A file, a folder, a glob, or s3://BUCKET/KEY.")
    to: str = Field(description="Output file; for a data set, output folder.")
    name: str | None = Field(None, description="Data set of the source.")
    short: dict[str, str] = Field(default_factory=dict, description="TFRecord: feature name by column.")
    batch: int | None = Field(None, ge=1, le=1 << 20, description="TFRecord: rows per Example.")
    grouped: bool = Field(False, description="TFRecord: columns grouped by type.")
    narrow: bool = Field(False, description="TFRecord: fractions may be rounded to float32.")


class WrittenFiles(Strict):
    rows: dict[str, int] = Field(description="Number of rows by file.")


class Download(Strict):
    name: str = Field(description="Name of the data set.")
    to: str = Field(description="Folder to unpack in.")


class Downloaded(Strict):
    folder: str
    bytes: int
    sha256: str
    licence: str


class Describe(Strict):
    uri: str = Field(description="A file, a folder, a glob, or s3://BUCKET/KEY.")
    top: int = Field(5, ge=0, le=100, description="Number of the most frequent values to list.")


class DescribedData(Strict):
    class Column(Strict):
        name: str
        type: str
        nulls: int
        min: Any = None
        max: Any = None
        distinct: int | None = Field(None, description="Number of distinct values; null for nested records, which are not counted.")
        estimated: bool = Field(False, description="Whether the number of distinct values is an estimate.")
        shortest: int | None = Field(None, description="Length of the shortest list.")
        longest: int | None = None
        top: tuple[tuple[Any, int], ...] = Field((), description="The most frequent values, with their number of rows.")

    uri: str
    rows: int
    columns: tuple[Column, ...]


class ToolAnswer(Strict):
    """Either the result, or the error in one line with an exit code: 2 means that the user can fix it, 1 any other error."""

    found: dict[str, Any] = Field(default_factory=dict)
    fault: str | None = None
    code: int = 0
