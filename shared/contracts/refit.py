"""`refit.json`: the rows of a refit. If a version has this file, its model is the refitted one."""

from __future__ import annotations

from pydantic import Field

from shared.contracts.strict import Strict

REFIT = "refit.json"


class Refit(Strict):
    version: int = Field(1, description="Of this format.")
    rows: int = Field(description="That it was fitted on.")
    newest: float = Field(description="When the newest of them happened, in seconds since 1970.")
    held: int = Field(description="Likes that it may not learn: what a later warm run has forgotten is measured on them.")
