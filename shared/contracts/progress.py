"""Progress of a stage while it works; `GET /v1/runs/{id}` shows it."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from shared.contracts.strict import Strict


class EpochTold(Strict):
    epoch: int = Field(description="Number of the epoch, from 1.")
    loss: float = Field(description="Mean loss over the training rows.")
    seconds: float = Field(description="Seconds of training, without validation.")
    rows_per_s: float = Field(description="Training rows per second, including negatives.")
    validation: dict[str, float] = Field(default_factory=dict, description="Metrics of the held-out rows; empty without validation.")


class Progress(Strict):
    at: datetime = Field(description="Time of the report.")
    epoch: int = Field(description="Number of the current or the last epoch.")
    epochs: int = Field(description="Maximum number of epochs.")
    step: int = Field(description="Current step of the epoch.")
    steps: int = Field(description="Number of steps of an epoch.")
    loss: float = Field(description="Mean loss of the epoch so far.")
    rows_per_s: float = Field(description="Rows per second of the epoch so far.")
    seconds_left: float | None = Field(description="Seconds that remain if all epochs run.")
    history: tuple[EpochTold, ...] = Field((), description="The newest finished epochs.")
