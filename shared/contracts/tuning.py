"""Protocol of `eyas train` and `eyas tune` with their worker process."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from shared.contracts.ranges import Range
from shared.contracts.strict import Strict
from shared.contracts.trials import Holdout

TRIALS, BEST, TUNE, TUNE_PAGE = "trials.jsonl", "best.yaml", "tune.json", "tune.html"
TRAINING, TRAINED, SERVED = "training.json", "model", "triton"


class TuneRequest(Strict):
    train: str = Field(description="The file of pairs to search on.")
    name: str = Field(description="The family, preset or spec, for people.")
    model: dict[str, Any] = Field(description="A spec's `model`: what stays as it is.")
    allow: tuple[str, ...] = Field((), description="Modules that families of somebody's own may be of.")
    ranges: dict[str, Range] = Field(description="By name in the spec's `model`, as `params.width`; the family's own when empty.")
    test: str | None = Field(None, description="What the best and the settings as they were are judged by at the end.")
    on_test: bool = Field(False, description="Whether the search itself is judged by `test`.")
    trials: Annotated[int, Field(ge=1, le=10_000)] = 20
    minutes: Annotated[float, Field(gt=0)] | None = Field(None, description="After which no trial begins.")
    metric: str = "ndcg@10"
    holdout: Holdout | None = None
    min_interactions: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 1
    out: str


class TriedRow(Strict):
    """One trial, as a line of trials.jsonl."""

    number: int
    params: dict[str, Any] = Field(description="What was chosen, by name; nothing in the first trial: settings as they are.")
    state: Literal["done", "failed"]
    value: float | None = Field(None, description="Of the metric.")
    metrics: dict[str, float] = Field(default_factory=dict)
    seconds: float = Field(0, description="Of training and judging.")
    reason: str | None = Field(None, description="Why it failed.")
    same_as: int | None = Field(None, description="The trial that chose the same and stands for it.")


class Gain(Strict):
    """Result on pairs that the search did not use."""

    metric: str
    before: float = Field(description="With settings as they were.")
    after: float = Field(description="With the best that were found.")


class TunedAnswer(Strict):
    metric: str
    best: tuple[TriedRow, ...] = Field(description="The ten best, the best first.")
    default: TriedRow
    done: int
    failed: int
    gain: Gain | None
    stopped: bool = Field(description="Whether the time was over before all trials were made.")
    files: tuple[str, ...]


class TrainRequest(Strict):
    train: str = Field(description="The file of pairs to train on.")
    name: str = Field(description="The family, preset or spec, for people.")
    model: dict[str, Any] = Field(description="A spec's `model`.")
    allow: tuple[str, ...] = Field((), description="Modules that families of somebody's own may be of.")
    min_interactions: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] | None = Field(None, description="The spec's when absent.")
    out: str = Field(description="The folder to write to.")


class TrainedAnswer(Strict):
    seconds: float
    metrics: dict[str, float]
    parity: float = Field(description="Largest difference between the served unit's scores and training's.")
    model: str
    served: str
    training: str
