"""What `eyas data` asks of the process that reads data: one request as JSON on its stdin, one answer as JSON on its stdout."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.contracts.strict import Strict
from shared.contracts.validation_report import Report

MODULE = "pipelines.data"


class ValidateRequest(Strict):
    """`source`: a spec, or a file of data whose columns are found by their names where they aren't given."""

    source: str
    roots: tuple[str, ...] = Field(description="Below these relative paths are looked for, and what lies elsewhere isn't read.")
    columns: dict[Literal["user", "item", "time", "label"], str] = Field(default_factory=dict)
    positive: str = ">= 4"
    against: str | None = Field(None, description="The profile.json of an accepted batch.")
    folder: str | None = Field(None, description="Where everything is written that a run would publish of it.")


class Validated(Strict):
    report: Report
    refusal: str | None = Field(description="Why a run would stop.")
