"""Progress of a stage while it works; `GET /v1/runs/{id}` shows it."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from shared.contracts.strict import Strict


class EpochTold(Strict):
    epoch: int = Field(description="From 1.")
    loss: float = Field(description="Mean over the rows that were trained on.")
    seconds: float = Field(description="Of training alone.")
    rows_per_s: float = Field(description="Rows trained on, negatives among them.")
    validation: dict[str, float] = Field(default_factory=dict, description="What the held-out rows say; empty where nobody looked.")


class Progress(Strict):
    at: datetime = Field(description="When it was told.")
    epoch: int = Field(description="Under way, or the last one that has ended.")
    epochs: int = Field(description="As many as there may be.")
    step: int = Field(description="Of this epoch.")
    steps: int = Field(description="Of an epoch.")
    loss: float = Field(description="Of this epoch so far.")
    rows_per_s: float = Field(description="Of this epoch so far.")
    seconds_left: float | None = Field(description="If no epoch is spared.")
    history: tuple[EpochTold, ...] = Field((), description="The newest of the epochs that have ended.")
