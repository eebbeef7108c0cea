"""`refit.json`: the rows of a refit. If a version has this file, its model is the refitted one."""

from __future__ import annotations

from pydantic import Field

from shared.contracts.strict import Strict

REFIT = "refit.json"


class Refit(Strict):
    version: int = Field(1, description="Version of this format.")
    rows: int = Field(description="Number of rows of the fit.")
    newest: float = Field(description="Time of the newest of these rows, in seconds since 1970.")
    held: int = Field(description="Number of positives that are not learned: they measure what a later warm run has forgotten.")
