"""Protocol of `eyas train` and `eyas tune` with their worker process."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from shared.contracts.ranges import NumberRange
from shared.contracts.strict import Strict
from shared.contracts.trials import Holdout

TRIALS, BEST, TUNE, TUNE_PAGE = "trials.jsonl", "best.yaml", "tune.json", "tune.html"
TRAINING, TRAINED, SERVED = "training.json", "model", "triton"


class TuneRequest(Strict):
    train: str = Field(description="File of the training pairs.")
    name: str = Field(description="Family, preset or spec, for people.")
    model: dict[str, Any] = Field(description="A spec's `model` with the fixed settings.")
    allow: tuple[str, ...] = Field((), description="Python modules that custom families may come from.")
    ranges: dict[str, NumberRange] = Field(description="Ranges by setting, such as `params.width`; the family's own if empty.")
    test: str | None = Field(None, description="File of test pairs that compares the best settings with the original ones at the end.")
    on_test: bool = Field(False, description="Whether the search itself is evaluated on `test`.")
    trials: Annotated[int, Field(ge=1, le=10_000)] = 20
    minutes: Annotated[float, Field(gt=0)] | None = Field(None, description="Time after which no trial begins.")
    metric: str = "ndcg@10"
    holdout: Holdout | None = None
    min_interactions: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 1
    out: str


class TriedRow(Strict):
    """One trial, as a line of trials.jsonl."""

    number: int
    params: dict[str, Any] = Field(description="Chosen settings by name; empty in the first trial, with original settings.")
    state: Literal["done", "failed"]
    value: float | None = Field(None, description="Value of the metric.")
    metrics: dict[str, float] = Field(default_factory=dict)
    seconds: float = Field(0, description="Seconds of training and evaluation.")
    reason: str | None = Field(None, description="Reason of the failure.")
    same_as: int | None = Field(None, description="Number of an earlier trial with the same settings, whose result is used.")


class Gain(Strict):
    """Result on pairs that the search did not use."""

    metric: str
    before: float = Field(description="Value with the original settings.")
    after: float = Field(description="Value with the best settings.")


class TunedAnswer(Strict):
    metric: str
    best: tuple[TriedRow, ...] = Field(description="The ten best trials, best first.")
    default: TriedRow
    done: int
    failed: int
    gain: Gain | None
    stopped: bool = Field(description="Whether the time limit ended the search before all trials.")
    files: tuple[str, ...]


class TrainRequest(Strict):
    train: str = Field(description="File of the training pairs.")
    name: str = Field(description="Family, preset or spec, for people.")
    model: dict[str, Any] = Field(description="A spec's `model`.")
    allow: tuple[str, ...] = Field((), description="Python modules that custom families may come from.")
    min_interactions: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] | None = Field(None, description="Seed; the spec's if absent.")
    out: str = Field(description="Output folder.")


class TrainedAnswer(Strict):
    seconds: float
    metrics: dict[str, float]
    parity: float = Field(description="Maximum difference between the scores of the served unit and of training.")
    model: str
    served: str
    training: str
