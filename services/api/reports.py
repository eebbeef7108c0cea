"""Reports of a run: its gates, and the features that it made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from services.api.access import Room, Who
from services.api.dependencies import Parts, With
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

room = Room("runs")

_FEATURES = "features.json"
_NAMES = ("of", "by")
_SHORT = 400
"""Longest fitted value, as JSON, that a report shows."""


class GateAsked(BaseModel):
    gate: str
    stage: Literal["evaluate", "refit", "verify"] = Field(description="After which it is asked.")
    verdict: Literal["pass", "fail", "inconclusive", "error", "open", "not asked"] = Field(
        description="`open`: its stage hasn't ended yet; `not asked`: the run ended before."
    )
    reason: str = Field(description="Empty while it is open, and where it wasn't asked.")
    accepted: str = Field(description="Who accepts it although it is inconclusive: `the spec`, or a person; else empty.")
    metric: str = Field(description="What it is about, such as hr@10.")
    value: float | None = Field(description="The candidate's; null where it wasn't measured.")
    against: str | None = Field(
        description="Whose value it is held against: popularity, baseline, serving, or of a refit candidate; null where a bound is."
    )
    other: float | None = Field(description="That one's value; null where a bound is, or where it wasn't measured.")
    users: int | None = Field(description="How many users the value rests on; null where it isn't about users, or wasn't measured.")
    standard_error: float | None = Field(description="Of the value, or of its difference to the other one; null where it wasn't measured.")
    needed: float | None = Field(description="What the value is held against: the bound, or the other's value with its margin.")
    apart: float | None = Field(
        description="How far the value is on the good side of what is needed, as a share of that: -0.2 misses by a fifth."
    )


class GatesView(BaseModel):
    run: str
    gates: list[GateAsked] = Field(
        description="All that are asked of such a run: those that its spec names, in their order, then that of its refit."
    )


class FeatureMade(BaseModel):
    operator: str = Field(description="Such as categorify.")
    of: list[str] = Field(description="The columns that it reads.")
    settings: dict[str, Any] = Field(description="What its operator was told, where that isn't null.")
    fitted: dict[str, Any] = Field(description="What was found in the training rows, short enough to be shown.")


class TableMade(BaseModel):
    column: str = Field(description="The feature whose codes they are.")
    codes: int = Field(description="Different values that have a row of their own; further ones share one.")
    width: int | None = Field(description="Of its vectors; null before train, and of models without them.")
    bytes: int | None = Field(description="Of its vectors; null before train, and of models without them.")


class FeatureReport(BaseModel):
    attempt: str = Field(description="Of the etl stage.")
    snapshot: str | None = Field(description="A digest of the rows that were read.")
    rows: dict[str, int] = Field(description="By what they are: read from the file, dropped, of items, to train on, held out.")
    oldest: datetime | None = Field(description="Of the rows.")
    cut: datetime | None = Field(description="Rows from then on are held out; null where they aren't by time.")
    newest: datetime | None = Field(description="Of the rows.")
    features: list[FeatureMade] = Field(description="In the order of the spec, with those that are made by rule.")
    tables: list[TableMade] = Field(description="Of features that are codes.")


@room.get("/v1/runs/{id}/gates", Role.VIEWER)
def get_run_gates(parts: With, who: Who, id: str) -> GatesView:
    """Lists each gate with its verdict and its figures, including gates that are open or weren't asked."""
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
    made = parts.artifacts.manifest(attempt) if attempt else None
    if made is None or attempt is None or _FEATURES not in made.files:
        raise NotFound(f"run {id} has made no features: it has a report of them when etl has ended well")
    trained = attempt_of(record, "train")
    train = parts.artifacts.manifest(trained) if trained else None
    tables = {table["column"]: table for table in _list(train, "tables")}
    split = _mapping(made, "split")
    rows = {name.removeprefix("rows."): int(value) for name, value in made.metrics.items() if name.startswith("rows.")}
    return FeatureReport(
        attempt=attempt,
        snapshot=made.facts.get("snapshot"),
        rows={**{name: int(value) for name, value in _mapping(made, "rows").items()}, **rows},
        oldest=_instant(split.get("oldest")),
        cut=_instant(split.get("cut")),
        newest=_instant(split.get("newest")),
        features=_features(parts, made.files),
        tables=[
            TableMade(column=name, codes=codes, width=tables.get(name, {}).get("width"), bytes=tables.get(name, {}).get("bytes"))
            for name, codes in _mapping(made, "cardinalities").items()
        ],
    )


def _features(parts: Parts, files: Files) -> list[FeatureMade]:
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


def _mapping(made: Manifest, name: str) -> Mapping[str, Any]:
    fact = made.facts.get(name)
    return fact if isinstance(fact, dict) else {}


def _list(made: Manifest | None, name: str) -> list[Any]:
    fact = made.facts.get(name) if made is not None else None
    return fact if isinstance(fact, list) else []


def _instant(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, int | float) else None
