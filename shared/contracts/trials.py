"""Protocol of `eyas evaluate` with its worker process, which evaluates models without a platform; and the file names of reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shared.contracts.strict import Strict

REPORT, PAGE = "report.json", "report.html"
BASELINE = "popularity"
Holdout = Literal["last", "random", "newest"]


class EvaluateRequest(Strict):
    train: str = Field(description="The file of pairs to train on.")
    test: str | None = Field(None, description="The file of pairs to judge by; cut from `train` when absent.")
    negatives: str | None = Field(None, description="The file of each test pair's negatives; verified ones are drawn when absent.")
    models: tuple[str, ...] = Field((), max_length=20, description="Families, or presets.")
    saved: tuple[str, ...] = Field((), max_length=20, description="Folders of models that were kept: judged as they are.")
    allow: tuple[str, ...] = Field((), description="Modules that families of somebody's own may be of.")
    keep: bool = Field(False, description="Trained models are kept below `out`.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Parameters of the models; `train.NAME` is of their training.")
    seeds: Annotated[int, Field(ge=1, le=100)] = Field(1, description="How often each model is trained: by 1, 2, ...")
    out: str = Field(description="The folder to write to.")
    sampled: Annotated[int, Field(ge=1, le=9999)] = Field(99, description="Negatives that are drawn for each test pair.")
    holdout: Holdout | None = Field(
        None, description="`last`: each user's newest pair; `random`: one of each user's; `newest`: the newest tenth of all rows."
    )
    seed: Annotated[int, Field(ge=0)] = Field(1, description="Of what is held out, of negatives and of intervals.")
    min_interactions: Annotated[int, Field(ge=1)] = Field(1, description="Users of `train` with fewer are left out.")
    users: str | None = Field(None, description="A table of users, for slices.")
    items: str | None = Field(None, description="A table of items, for slices.")
    slices: tuple[str, ...] = Field((), description="Columns of these tables.")
    strict: bool = Field(False, description="Faults of the files end it.")

    @model_validator(mode="after")
    def _judges_something(self) -> EvaluateRequest:
        if not self.models and not self.saved:
            raise ValueError("there is nothing to judge: say --model NAME, or --saved FOLDER")
        saved = [folder.rstrip("/").rsplit("/", 1)[-1] for folder in self.saved]
        if BASELINE in saved:
            raise ValueError(f"--saved: a folder called '{BASELINE}' would stand in the place of the baseline: call it something else")
        names = [*self.models, *saved]
        again = next((name for name in names if names.count(name) > 1), None)
        if again is not None:
            raise ValueError(f"'{again}' is named twice")
        return self


class Spread(Strict):
    """A figure over several seeds."""

    mean: float
    std: float = Field(description="Of a sample; 0 where there is one seed.")
    seeds: int


class Evaluated(Strict):
    class Row(Strict):
        model: str
        metrics: dict[str, Spread]
        minutes: float | None = Field(description="Of one training, on average; None of what wasn't trained.")

    rows: tuple[Row, ...]
    faults: tuple[str, ...] = Field(description="Of the files, in words.")
    report: str
    page: str


class RunReport(Strict):
    """Report of a run's evaluation."""

    attempt: str = Field(description="Of the evaluate stage.")
    report: dict[str, Any] = Field(description="Figures by model, with intervals, slices and curves.")
    page: str = Field(description="The same as a page of HTML that needs nothing from elsewhere.")
