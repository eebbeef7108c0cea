"""What the checks of a batch found: `validation.json`, which etl publishes whether it goes on or stops."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.contracts.strict import Strict
from shared.domain.soundness import Verdict

REPORT, PAGE, PROFILE = "validation.json", "validation.html", "profile.json"
QUARANTINE = "quarantine/interactions.parquet"
ACCEPTED = "accepted"
"""The origin, among a stage's inputs, of the profile of the last registered version."""


class Check(Strict):
    """One thing that was looked at. `figure` is what `warn` and `stop` are held against: more than one of them crosses it."""

    name: str
    column: str | None = None
    verdict: Verdict
    figure: float
    unit: Literal["share", "index"] = Field("share", description="A share of the whole; or an index, such as a population stability index.")
    warn: float | None = None
    stop: float | None = None
    says: str = Field(description="A sentence for people.")


class FaultyFile(Strict):
    """A file of several that can't be read: nothing of it is used, and it stays where it is."""

    name: str
    size: int
    sha256: str
    fault: str


class Rows(Strict):
    """`read` is always `kept` and `quarantined` together. Rows of faulty files can't be counted."""

    read: int
    kept: int
    quarantined: int


class Bar(Strict):
    """A part of a column's values: how often it was there in the last accepted batch, and now."""

    name: str
    now: int
    before: int | None = None


class Distribution(Strict):
    column: str
    bars: tuple[Bar, ...]


class Report(Strict):
    version: int = Field(1, ge=1, le=1, description="Of this format.")
    recommender: str
    source: str
    verdict: Verdict
    rows: Rows
    reasons: dict[str, int] = Field(description="Quarantined rows by what is wrong with them; a row may have several faults.")
    files: tuple[str, ...] = Field(description="By name; the first hundred.")
    faulty: tuple[FaultyFile, ...] = ()
    checks: tuple[Check, ...]
    compared: bool = Field(description="Whether there was an accepted batch to compare with.")
    distributions: tuple[Distribution, ...] = ()

    def crossed(self, verdict: Verdict) -> tuple[Check, ...]:
        return tuple(one for one in self.checks if one.verdict == verdict)
