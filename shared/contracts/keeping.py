"""The spec's `keep`: how long events stay in the database."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, model_validator

from shared.contracts.archive import EventTable
from shared.contracts.quantities import Duration, write_duration
from shared.contracts.strict import Strict

LEAST_KEPT = timedelta(days=30)
"""Shortest time for which events and entries of logs can be kept."""


class Keep(Strict):
    impressions: Duration = Field(
        timedelta(days=400),
        description="Time for which impressions stay in the database, at least 30d and the longest time of a rollout. Later only the daily "
        "files have them: training reads those, KPIs do not. A client's older impressions are refused.",
    )
    interactions: Duration = Field(
        timedelta(days=400),
        description="The same for interactions. The filter `not_seen` and the trigger `new_events` do not know older ones.",
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Keep:
        if self.impressions < LEAST_KEPT:
            raise ValueError(f"impressions: expected at least {write_duration(LEAST_KEPT)}, got {write_duration(self.impressions)}")
        if self.interactions < self.impressions:
            shorter, longer = write_duration(self.interactions), write_duration(self.impressions)
            raise ValueError(f"interactions: {shorter} is below impressions ({longer}); KPIs of an answer need its interactions")
        return self

    def of(self, table: EventTable) -> timedelta:
        return self.impressions if table == "impressions" else self.interactions
