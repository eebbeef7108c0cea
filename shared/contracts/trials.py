"""Protocol of `eyas evaluate` with its worker process, which evaluates models without a platform; and the file names of reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shared.contracts.strict import Strict

REPORT, PAGE = "report.json", "report.html"
BASELINE = "popularity"
Holdout = Literal["last", "random", "newest"]


class EvaluateRequest(Strict):
    train: str = Field(description="File of the training pairs.")
    test: str | None = Field(None, description="File of the test pairs; split from `train` if absent.")
    negatives: str | None = Field(None, description="File of the negatives of each test pair; drawn without known positives if absent.")
    models: tuple[str, ...] = Field((), max_length=20, description="Families or presets.")
    saved: tuple[str, ...] = Field((), max_length=20, description="Folders of saved models, which are evaluated without training.")
    allow: tuple[str, ...] = Field((), description="Python modules that custom families may come from.")
    keep: bool = Field(False, description="Saves trained models below `out`.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Parameters of the models; `train.NAME` for their training.")
    seeds: Annotated[int, Field(ge=1, le=100)] = Field(1, description="Number of trainings of each model, with the seeds 1, 2, ...")
    out: str = Field(description="Output folder.")
    sampled: Annotated[int, Field(ge=1, le=9999)] = Field(99, description="Number of negatives that are drawn for each test pair.")
    holdout: Holdout | None = Field(
        None, description="`last`: each user's newest pair; `random`: one random pair per user; `newest`: the newest tenth of all rows."
    )
    seed: Annotated[int, Field(ge=0)] = Field(1, description="Seed of the holdout, the negatives and the intervals.")
    min_interactions: Annotated[int, Field(ge=1)] = Field(1, description="Minimum interactions of a user in `train`.")
    users: str | None = Field(None, description="Table of users, for slices.")
    items: str | None = Field(None, description="Table of items, for slices.")
    slices: tuple[str, ...] = Field((), description="Columns of these tables.")
    strict: bool = Field(False, description="Faults in the files are errors.")

    @model_validator(mode="after")
    def _check_models(self) -> EvaluateRequest:
        if not self.models and not self.saved:
            raise ValueError("no model to evaluate; add --model NAME or --saved FOLDER")
        saved = [folder.rstrip("/").rsplit("/", 1)[-1] for folder in self.saved]
        if BASELINE in saved:
            raise ValueError(f"--saved: the folder name '{BASELINE}' is reserved for the baseline; rename the folder")
        names = [*self.models, *saved]
        again = next((name for name in names if names.count(name) > 1), None)
        if again is not None:
            raise ValueError(f"'{again}' is named twice")
        return self


class SeedSpread(Strict):
    """A figure over several seeds."""

    mean: float
    std: float = Field(description="Standard deviation over the seeds; 0 for one seed.")
    seeds: int


class EvaluatedModel(Strict):
    class Row(Strict):
        model: str
        metrics: dict[str, SeedSpread]
        minutes: float | None = Field(description="Mean minutes of one training; null without training.")

    rows: tuple[Row, ...]
    faults: tuple[str, ...] = Field(description="Faults of the files.")
    report: str
    page: str


class RunReport(Strict):
    """Report of a run's evaluation."""

    attempt: str = Field(description="Attempt of the evaluate stage.")
    report: dict[str, Any] = Field(description="Figures by model, with intervals, slices and curves.")
    page: str = Field(description="The report as one HTML page without external files.")
