"""Report of the data checks: `validation.json`, which etl publishes whether it continues or stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from shared.contracts.strict import Strict
from shared.domain.soundness import Verdict

TableName = Literal["items", "users"]
REPORT, PAGE, PROFILE = "validation.json", "validation.html", "profile.json"
QUARANTINE = "quarantine/interactions.parquet"
TABLE_QUARANTINE: Mapping[TableName, str] = {"items": "quarantine/items.parquet", "users": "quarantine/users.parquet"}
EVENTS_QUARANTINE = "quarantine/events.parquet"
ACCEPTED = "accepted"
"""Origin, among a stage's inputs, of the profile of the last registered version."""


class Check(Strict):
    """Result of one check. `figure` is compared with `warn` and `stop`; a larger figure crosses them."""

    name: str = Field(description="Name of the check, such as bad_rows or drift.")
    column: str | None = Field(None, description="Column of the check, if it has one.")
    verdict: Verdict = Field(description="Result of the comparison with the limits.")
    figure: float = Field(description="Measured value.")
    unit: Literal["share", "index"] = Field("share", description="A share of the whole, or an index such as a population stability index.")
    warn: float | None = Field(None, description="Limit above which the check warns; null: never.")
    stop: float | None = Field(None, description="Limit above which the check stops the run; null: never.")
    says: str = Field(description="Sentence for people.")


class FaultyFile(Strict):
    """Unreadable file of several; none of its rows are used, and the file stays in place."""

    name: str = Field(description="Name of the file.")
    size: int = Field(description="Size in bytes.")
    sha256: str = Field(description="Digest of the content.")
    fault: str = Field(description="Reason why the file cannot be read.")


class Rows(Strict):
    """`read` is always `kept` plus `quarantined`. Rows of faulty files cannot be counted."""

    read: int = Field(description="Number of rows that were read.")
    kept: int = Field(description="Number of good rows.")
    quarantined: int = Field(description="Number of bad rows, which are stored with their reasons.")
    pages: int | None = Field(
        None,
        exclude_if=lambda pages: pages is None,
        description="Number of page views among the good rows: rows without an item. Absent if the spec has no `schema.page`.",
    )


class Bar(Strict):
    """Part of a column's values: its count in the last accepted batch, and now."""

    name: str = Field(description="Value, or range of values.")
    now: int = Field(description="Number of rows now.")
    before: int | None = Field(None, description="Number of rows in the last accepted batch; null without one.")


class Distribution(Strict):
    column: str = Field(description="Name of the column.")
    bars: tuple[Bar, ...] = Field(description="Bars of the column, in order.")


class Section(Strict):
    """Checks of a table, or of the platform's own events."""

    name: TableName | Literal["events"] = Field(description="Table, or the platform's events.")
    source: str = Field(description="Source of the rows.")
    verdict: Verdict = Field(description="Worst verdict of the checks.")
    rows: Rows = Field(description="Number of rows read, good and quarantined.")
    reasons: dict[str, int] = Field(description="Quarantined rows by fault; a row may have several faults.")
    checks: tuple[Check, ...] = Field(description="Checks with their values and sentences.")
    compared: bool = Field(description="Whether an accepted table existed to compare with.")
    distributions: tuple[Distribution, ...] = Field((), description="Distributions of the compared columns.")

    @property
    def quarantine(self) -> str:
        """Name of the published file with its bad rows."""
        return EVENTS_QUARANTINE if self.name == "events" else TABLE_QUARANTINE[self.name]

    def crossed(self, verdict: Verdict) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == verdict)


class Report(Strict):
    version: int = Field(1, ge=1, le=1, description="Version of this format.")
    recommender: str = Field(description="Name of the recommender.")
    source: str = Field(description="Source of the interactions; `events.csv`: the platform's events, the only source of a warm run.")
    verdict: Verdict = Field(description="Worst verdict of the checks, including its sections.")
    rows: Rows = Field(description="Number of rows read, good and quarantined.")
    reasons: dict[str, int] = Field(description="Quarantined rows by fault; a row may have several faults.")
    files: tuple[str, ...] = Field(description="Names of the first hundred files.")
    faulty: tuple[FaultyFile, ...] = Field((), description="Files that cannot be read.")
    checks: tuple[Check, ...] = Field(description="Checks with their values and sentences.")
    compared: bool = Field(description="Whether an accepted batch existed to compare with.")
    distributions: tuple[Distribution, ...] = Field((), description="Distributions of the compared columns.")

    sections: tuple[Section, ...] = Field((), description="Sections of the items and users tables, and of events in addition to a file.")

    def crossed(self, verdict: Verdict) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == verdict)
