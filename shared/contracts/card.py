"""Model card of a version. Export begins it and registration completes it; it is stored with the version's files and verified by digest."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from shared.contracts.strict import Strict

CARD = "model_card.json"


class Exported(Strict):
    """Part of the model card that export writes."""

    version: Literal[1] = Field(description="Version of this format.")
    recommender: str
    run: str = Field(description="Run that made the version.")
    mode: str
    model: dict[str, Any] = Field(description="The spec's `model`: family, parameters, training.")
    features: tuple[dict[str, Any], ...] = Field(description="Features of each column, with the number of codes.")
    tables: tuple[dict[str, Any], ...] = Field(description="Lookup tables by code: rows, width, bytes.")
    lookup_bytes: int = Field(description="Bytes of these tables that one row reads.")
    label: str = Field(description="Definition of a positive.")
    score: str = Field(description="Meaning of the score.")
    recent: str | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Effect of the user's positives since the training on an answer; absent: none before the next version.",
    )
    new_items: tuple[str, ...] = Field(
        (),
        exclude_if=lambda value: not value,
        description="Attributes of the catalogue by which the version scores items that came after its training.",
    )


class CardData(Strict):
    snapshot: datetime = Field(description="Time when the data was read.")
    digest: str | None = Field(description="Digest of the data's content.")
    fingerprint: str = Field(description="Fingerprint of the files' names, sizes and modification times.")
    versions: dict[str, str] = Field(
        {}, exclude_if=lambda versions: not versions, description="Versions of the Delta and Iceberg tables that were read, by source."
    )
    rows: dict[str, float] = Field(description="Number of rows by part: training, holdout, items.")
    oldest: datetime | None = Field(None, description="Time of the first interaction.")
    cut: datetime | None = Field(None, description="Time when the holdout begins.")
    newest: datetime | None = Field(None, description="Time of the last interaction.")


class CardFit(Strict):
    stage: Literal["train", "refit"] = Field(description="`train`: the candidate, which offline figures describe; `refit`: the served one.")
    rows: int = Field(description="Number of rows of the fit.")
    newest: datetime | None = Field(None, description="Time of the newest of these rows.")
    epochs: int | None = Field(None, description="Number of epochs, sweeps or trees; null for a family without them.")


class CardGate(Strict):
    gate: str
    verdict: str
    reason: str


class CardLineage(Strict):
    parent: int | None = Field(description="Version from which the warm run started.")
    serving: int | None = Field(description="Version that it was compared with.")
    cause: str
    asked_by: str
    code: str = Field(description="Version of the code that its stages ran.")
    spec_generation: int = Field(description="Generation of the spec.")
    spec_digest: str = Field(description="Digest of the spec's content.")
    seeds: dict[str, int] = Field(description="Seeds by stage.")
    attempts: dict[str, str] = Field(description="Attempt by stage whose result is used, of this run or of an earlier one.")


class Card(Strict):
    version: Literal[1] = Field(description="Version of this format.")
    recommender: str
    run: str = Field(description="Run that made the version.")
    about: Exported | None = Field(description="Model, features and tables; null if export did not describe them.")
    data: CardData = Field(description="Training data.")
    fits: tuple[CardFit, ...] = Field((), description="Fits of the model, in order.")
    metrics: dict[str, dict[str, float]] = Field(
        description="Values by metric of the candidate, the baseline and the serving version, on the holdout, before the refit."
    )
    serving: dict[str, float] = Field(description="Measurements by `verify` on a real server: parity, milliseconds, rows per second, MiB.")
    gates: tuple[CardGate, ...] = Field(description="Gates with their verdicts and reasons.")
    lineage: CardLineage = Field(description="Origin of the version.")
    files: dict[str, int] = Field(description="Bytes of each file.")
