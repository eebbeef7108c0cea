"""Reports of a run: its gates, the features that it made, and its training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from services.api.access import RoleRouter, Who
from services.api.dependencies import ControlParts, With
from services.api.runs import attempt_of, run_view
from shared.contracts.features import OPERATORS
from shared.contracts.plans import run_plan
from shared.contracts.stage import Files, Manifest
from shared.domain.access import Role
from shared.domain.errors import NotFound
from shared.domain.gate import Gate
from shared.domain.metric import certainty, count_of
from shared.domain.run import MACHINE
from shared.ports import RunRecord
from shared.run_factory import spec_of, stages_of

room = RoleRouter("runs")

_FEATURES, _TRAINING = "features.json", "training.json"
_NAMES = ("of", "by")
_SHORT = 400
"""Longest fitted value, as JSON, that a report shows."""


class GateAsked(BaseModel):
    gate: str
    stage: Literal["evaluate", "refit", "verify"] = Field(description="Stage after which the gate is checked.")
    verdict: Literal["pass", "fail", "inconclusive", "error", "open", "not asked"] = Field(
        description="Verdict; `open`: the stage has not ended yet; `not asked`: the run ended before the stage."
    )
    reason: str = Field(description="Reason of the verdict; empty for `open` and `not asked`.")
    accepted: str = Field(description="Who accepts an inconclusive verdict: `the spec` or a person; else empty.")
    metric: str = Field(description="Metric of the gate, such as hr@10.")
    value: float | None = Field(description="Value of the candidate; null if not measured.")
    against: str | None = Field(
        description="Compared with: popularity, baseline, serving, or candidate for a refit; null if the gate has a bound."
    )
    other: float | None = Field(description="Value of that one; null if the gate has a bound, or if not measured.")
    users: int | None = Field(description="Number of users behind the value; null if it does not count users, or was not measured.")
    standard_error: float | None = Field(description="Standard error of the value or of the difference; null if not measured.")
    needed: float | None = Field(description="Value that the gate needs: the bound, or the other value with its margin.")
    apart: float | None = Field(
        description="Distance of the value to the needed one, as a share of the needed one: -0.2 misses it by 20 %."
    )


class GatesView(BaseModel):
    run: str
    gates: list[GateAsked] = Field(description="Gates of the run: those of its spec in their order, then the gate of the refit.")


class FeatureMade(BaseModel):
    operator: str = Field(description="Name of the operator, such as categorify.")
    of: list[str] = Field(description="Columns that the operator reads.")
    settings: dict[str, Any] = Field(description="Settings of the operator that are not null.")
    fitted: dict[str, Any] = Field(description="Values fitted on the training rows; long values are left out.")


class TableMade(BaseModel):
    column: str = Field(description="Feature of the codes.")
    codes: int = Field(description="Number of values with a row of their own; other values share one.")
    width: int | None = Field(description="Width of the vectors; null before train, and for models without vectors.")
    bytes: int | None = Field(description="Size of the vectors; null before train, and for models without vectors.")


class FeatureReport(BaseModel):
    attempt: str = Field(description="Attempt of the etl stage.")
    snapshot: str | None = Field(description="Digest of the rows that were read.")
    rows: dict[str, int] = Field(description="Number of rows by kind: file, dropped, items, train, holdout.")
    oldest: datetime | None = Field(description="Time of the oldest row.")
    cut: datetime | None = Field(description="Start of the holdout; null if the split is not by time.")
    newest: datetime | None = Field(description="Time of the newest row.")
    features: list[FeatureMade] = Field(description="Features in the order of the spec, with those that were added automatically.")
    tables: list[TableMade] = Field(description="Tables of features that are codes.")


class TrainedEpoch(BaseModel):
    epoch: int = Field(description="Number of the epoch, from 1; of a family of trees, the number of trees.")
    loss: float = Field(description="Mean loss over the training rows.")
    seconds: float = Field(description="Seconds of training, without validation.")
    validation: dict[str, float] = Field(description="Metrics of the held-out rows; empty without validation.")


class TrainingReport(BaseModel):
    attempt: str = Field(description="Attempt of the train stage.")
    unit: Literal["epoch", "trees"] = Field(description="What `epoch` counts.")
    epochs: list[TrainedEpoch] = Field(description="Finished epochs, the oldest first.")
    published: int | None = Field(description="Epoch whose weights the model has; null while the stage works.")


@room.get("/v1/runs/{id}/gates", Role.VIEWER)
def get_run_gates(parts: With, who: Who, id: str) -> GatesView:
    """Lists each gate with its verdict and its figures, including gates that are open or were not asked."""
    record = who.row("run", parts.runs, id)
    metrics = run_view(parts, record).metrics
    gates = run_plan(spec_of(record), record.spec.mode).gates
    return GatesView(run=id, gates=[_gate_view(gate, record, metrics) for gate in gates if gate.stage in stages_of(record)])


def _gate_view(gate: Gate, record: RunRecord, metrics: Mapping[str, float]) -> GateAsked:
    name = str(gate)
    result = next((outcome for outcome in record.status.gates if outcome.gate == name), None)
    ended = MACHINE.terminal(record.status.state)
    value_name, other_name = gate.compared_names(metrics)
    value, users = metrics.get(value_name), metrics.get(count_of(value_name))
    other = metrics.get(other_name) if gate.against else None
    needed: float | None = gate.bound
    if gate.against:
        needed = None if other is None else other * (1 + gate.margin if gate.kind == "better_than" else 1 - gate.margin)
    return GateAsked.model_validate(
        {
            "gate": name,
            "stage": gate.stage,
            "verdict": result.verdict.value if result else "not asked" if ended else "open",
            "reason": result.reason if result else "",
            "accepted": result.accepted if result else "",
            "metric": gate.metric,
            "value": value,
            "against": gate.against or None,
            "other": other,
            "users": None if users is None else int(users),
            "standard_error": metrics.get(certainty(gate.value_name, gate.against or None)),
            "needed": needed,
            "apart": _apart(gate, value, needed),
        }
    )


def _apart(gate: Gate, value: float | None, needed: float | None) -> float | None:
    if value is None or not needed:
        return None
    return (needed - value if gate.kind == "max" else value - needed) / abs(needed)


@room.get("/v1/runs/{id}/features", Role.VIEWER)
def get_run_features(parts: With, who: Who, id: str) -> FeatureReport:
    """Returns what etl made of the run's data: rows, features with fitted values, and tables of codes."""
    record = who.row("run", parts.runs, id)
    attempt = attempt_of(record, "etl")
    manifest = parts.artifacts.manifest(attempt) if attempt else None
    if manifest is None or attempt is None or _FEATURES not in manifest.files:
        raise NotFound(f"run {id} has no feature report: it exists when etl has succeeded")
    trained = attempt_of(record, "train")
    train = parts.artifacts.manifest(trained) if trained else None
    tables = {table["column"]: table for table in _list(train, "tables")}
    split = _mapping(manifest, "split")
    rows = {name.removeprefix("rows."): int(value) for name, value in manifest.metrics.items() if name.startswith("rows.")}
    return FeatureReport(
        attempt=attempt,
        snapshot=manifest.facts.get("snapshot"),
        rows={**{name: int(value) for name, value in _mapping(manifest, "rows").items()}, **rows},
        oldest=_instant(split.get("oldest")),
        cut=_instant(split.get("cut")),
        newest=_instant(split.get("newest")),
        features=_features(parts, manifest.files),
        tables=[
            TableMade(column=name, codes=codes, width=tables.get(name, {}).get("width"), bytes=tables.get(name, {}).get("bytes"))
            for name, codes in _mapping(manifest, "cardinalities").items()
        ],
    )


@room.get("/v1/runs/{id}/training", Role.VIEWER)
def get_run_training(parts: With, who: Who, id: str) -> TrainingReport:
    """Returns the loss and the validation metrics of each epoch; while train works, of the newest finished epochs."""
    record = who.row("run", parts.runs, id)
    attempt = attempt_of(record, "train")
    manifest = parts.artifacts.manifest(attempt) if attempt else None
    if attempt and manifest is not None and _TRAINING in manifest.files:
        document = json.loads(parts.artifacts.read(manifest.files[_TRAINING]))
        unit: Literal["epoch", "trees"] = "epoch" if "epochs" in document else "trees"
        return TrainingReport(
            attempt=attempt,
            unit=unit,
            epochs=[_epoch(entry | {"epoch": entry[unit]}) for entry in document.get("epochs") or document.get("rounds", ())],
            published=document.get("published", {}).get(unit),
        )
    progress = run_view(parts, record).progress if record.status.state == "train" else None
    if attempt is None or progress is None:
        raise NotFound(f"run {id} has no training report: it exists when train works in epochs")
    return TrainingReport(attempt=attempt, unit="epoch", epochs=[_epoch(epoch.model_dump()) for epoch in progress.history], published=None)


def _epoch(entry: Mapping[str, Any]) -> TrainedEpoch:
    rates = ("seconds", "rows_per_s")
    measured = {name: value for name, value in entry.get("validation", {}).items() if name not in rates}
    return TrainedEpoch(epoch=entry["epoch"], loss=entry["loss"], seconds=entry["seconds"], validation=measured)


def _features(parts: ControlParts, files: Files) -> list[FeatureMade]:
    document = json.loads(parts.artifacts.read(files[_FEATURES]))
    features = []
    for number, entry in enumerate(document["entries"]):
        operator = next((name for name in OPERATORS if name in entry), "?")
        operand = entry.get(operator, [])
        more = {name: value for name, value in operand.items() if name not in _NAMES} if isinstance(operand, dict) else {}
        state = document["state"][number] if number < len(document["state"]) else {}
        features.append(
            FeatureMade(
                operator=operator,
                of=_named(operand),
                settings={name: value for name, value in {**entry, **more}.items() if name != operator and value is not None},
                fitted={name: value for name, value in state.items() if len(json.dumps(value)) <= _SHORT},
            )
        )
    return features


def _named(operand: Any) -> list[str]:
    """Returns columns that are given as a name, as several, or under `of` and `by`."""
    if isinstance(operand, str):
        return [operand]
    if isinstance(operand, dict):
        return [name for key in _NAMES for name in _named(operand.get(key, []))]
    return [column for column in operand if isinstance(column, str)] if isinstance(operand, list) else []


def _mapping(manifest: Manifest, name: str) -> Mapping[str, Any]:
    fact = manifest.facts.get(name)
    return fact if isinstance(fact, dict) else {}


def _list(manifest: Manifest | None, name: str) -> list[Any]:
    fact = manifest.facts.get(name) if manifest is not None else None
    return fact if isinstance(fact, list) else []


def _instant(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) else None
