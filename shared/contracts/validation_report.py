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

    name: str = Field(description="What was looked at, such as bad_rows or drift.")
    column: str | None = Field(None, description="The column that was looked at, where it is one.")
    verdict: Verdict = Field(description="What the thresholds say of the figure.")
    figure: float = Field(description="What was found.")
    unit: Literal["share", "index"] = Field("share", description="A share of the whole; or an index, such as a population stability index.")
    warn: float | None = Field(None, description="A figure beyond this is warned of; null: none is.")
    stop: float | None = Field(None, description="A figure beyond this stops the run; null: none does.")
    says: str = Field(description="A sentence for people.")


class FaultyFile(Strict):
    """Unreadable file of several; none of its rows are used, and the file stays in place."""

    name: str = Field(description="The file's name.")
    size: int = Field(description="In bytes.")
    sha256: str = Field(description="Of its content.")
    fault: str = Field(description="Why it can't be read.")


class Rows(Strict):
    """`read` is always `kept` plus `quarantined`. Rows of faulty files cannot be counted."""

    read: int = Field(description="Rows that were read.")
    kept: int = Field(description="Rows that are good.")
    quarantined: int = Field(description="Rows that were set aside with their reasons.")
    pages: int | None = Field(
        None,
        exclude_if=lambda pages: pages is None,
        description="Of the rows kept, views of pages: rows without an item. Absent where the spec names no `schema.page`.",
    )


class Bar(Strict):
    """Part of a column's values: its count in the last accepted batch, and now."""

    name: str = Field(description="The value, or the range of values.")
    now: int = Field(description="How often it is there now.")
    before: int | None = Field(None, description="How often it was there in the last accepted batch; null without one.")


class Distribution(Strict):
    column: str = Field(description="The column.")
    bars: tuple[Bar, ...] = Field(description="Its parts, in order.")


class Section(Strict):
    """Checks of a table, or of the platform's own events."""

    name: TableName | Literal["events"] = Field(description="What it is of.")
    source: str = Field(description="Where it is from.")
    verdict: Verdict = Field(description="The worst of its checks.")
    rows: Rows = Field(description="How many rows were read, kept and quarantined.")
    reasons: dict[str, int] = Field(description="Quarantined rows by what is wrong with them; a row may have several faults.")
    checks: tuple[Check, ...] = Field(description="Each check with its figure and its sentence.")
    compared: bool = Field(description="Whether there was an accepted one to compare with.")
    distributions: tuple[Distribution, ...] = Field((), description="Of each column that was compared.")

    @property
    def quarantine(self) -> str:
        """Name of the published file with its bad rows."""
        return EVENTS_QUARANTINE if self.name == "events" else TABLE_QUARANTINE[self.name]

    def crossed(self, verdict: Verdict) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == verdict)


class Report(Strict):
    version: int = Field(1, ge=1, le=1, description="Of this format.")
    recommender: str = Field(description="The recommender's name.")
    source: str = Field(
        description="Where the interactions are from; `events.csv`: the platform's own events, which are all of a warm run's."
    )
    verdict: Verdict = Field(description="The worst of its checks, of its sections too.")
    rows: Rows = Field(description="How many rows were read, kept and quarantined.")
    reasons: dict[str, int] = Field(description="Quarantined rows by what is wrong with them; a row may have several faults.")
    files: tuple[str, ...] = Field(description="By name; the first hundred.")
    faulty: tuple[FaultyFile, ...] = Field((), description="Files that can't be read.")
    checks: tuple[Check, ...] = Field(description="Each check with its figure and its sentence.")
    compared: bool = Field(description="Whether there was an accepted batch to compare with.")
    distributions: tuple[Distribution, ...] = Field((), description="Of each column that was compared.")

    sections: tuple[Section, ...] = Field((), description="Of the tables of items and users, and of events beside a file.")

    def crossed(self, verdict: Verdict) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == verdict)
