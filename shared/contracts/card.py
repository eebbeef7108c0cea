"""Model card of a version. Export begins it and registration completes it; it is stored with the version's files and verified by digest."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from shared.contracts.strict import Strict

CARD = "model_card.json"


class Exported(Strict):
    """Part of the model card that export writes."""

    version: Literal[1] = Field(description="Of this format.")
    recommender: str
    run: str = Field(description="The run that made it.")
    mode: str
    model: dict[str, Any] = Field(description="The spec's: family, parameters, training.")
    features: tuple[dict[str, Any], ...] = Field(description="What is made of each column, and how many codes it has.")
    tables: tuple[dict[str, Any], ...] = Field(description="What is looked up by code: rows, width, bytes.")
    lookup_bytes: int = Field(description="What one row reads of those tables.")
    label: str = Field(description="What counted as liked.")
    score: str = Field(description="What the score means.")


class CardData(Strict):
    snapshot: datetime = Field(description="When the data was read.")
    digest: str | None = Field(description="Of its content.")
    fingerprint: str = Field(description="Of its files' names, sizes and times of change.")
    rows: dict[str, float] = Field(description="By part: to train on, held out, items.")
    oldest: datetime | None = Field(None, description="The first interaction.")
    cut: datetime | None = Field(None, description="The holdout begins here.")
    newest: datetime | None = Field(None, description="The last interaction.")


class CardFit(Strict):
    stage: Literal["train", "refit"] = Field(description="`train`: the candidate, which offline figures are of; `refit`: what is served.")
    rows: int = Field(description="That it was fitted on.")
    newest: datetime | None = Field(None, description="When the newest of them happened.")
    epochs: int | None = Field(None, description="Epochs, sweeps or trees; null of a family without.")


class CardGate(Strict):
    gate: str
    verdict: str
    reason: str


class CardLineage(Strict):
    parent: int | None = Field(description="The version that it was warm-started from.")
    serving: int | None = Field(description="The version that it was compared with.")
    cause: str
    asked_by: str
    code: str = Field(description="The sources that its stages ran.")
    spec_generation: int = Field(description="Which writing of the spec.")
    spec_digest: str = Field(description="Of its content.")
    seeds: dict[str, int] = Field(description="By stage.")
    attempts: dict[str, str] = Field(description="By stage, the one that counts, be it of this run or of an earlier one.")


class Card(Strict):
    version: Literal[1] = Field(description="Of this format.")
    recommender: str
    run: str = Field(description="The run that made it.")
    about: Exported | None = Field(description="Model, features, tables; null where export said nothing.")
    data: CardData = Field(description="What it learned from.")
    fits: tuple[CardFit, ...] = Field((), description="Each fit of the model, in order.")
    metrics: dict[str, dict[str, float]] = Field(
        description="By metric: the candidate's value, the baseline's and the serving one's, on the holdout and before the refit."
    )
    serving: dict[str, float] = Field(description="What `verify` measured on a real server: parity, milliseconds, rows a second, MiB.")
    gates: tuple[CardGate, ...] = Field(description="What it had to prove, with reasons.")
    lineage: CardLineage = Field(description="Where it comes from.")
    files: dict[str, int] = Field(description="Bytes of each file.")
