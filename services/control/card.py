"""Completes a version's card at registration: only then is it known which gates it passed and where all of it came from. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.contracts.card import Card, CardData, CardGate, CardLineage, Exported
from shared.contracts.stage import Manifest
from shared.domain.run import RunStatus

CONTENDERS = ("candidate", "popularity", "baseline", "serving")


def complete(
    recommender: str,
    run: str,
    status: RunStatus,
    published: Mapping[str, Manifest],
    exported: Exported | None,
    lineage: Mapping[str, Any],
    parent: int | None,
) -> Card:
    """`published` has the manifest of each stage, `lineage` is the version's own."""
    export = published["export"]
    return Card(
        version=1,
        recommender=recommender,
        run=run,
        about=exported,
        data=_data(published["etl"], lineage),
        metrics=_beside(published["evaluate"].metrics),
        serving={name: value for name, value in published["verify"].metrics.items() if "." not in name},
        gates=tuple(CardGate(gate=one.gate, verdict=one.verdict.value, reason=one.reason) for one in status.gates),
        lineage=CardLineage(
            parent=parent,
            attempts={stage: one["attempt"] for stage, one in lineage["attempts"].items()},
            **{name: lineage[name] for name in ("serving", "cause", "asked_by", "code", "spec_generation", "spec_digest", "seeds")},
        ),
        files={name: file.size for name, file in sorted(export.files.items())},
    )


def _data(etl: Manifest, lineage: Mapping[str, Any]) -> CardData:
    split = etl.facts.get("split", {})
    times = {name: datetime.fromtimestamp(split[name], UTC) for name in ("oldest", "cut", "newest") if name in split}
    rows = {name.removeprefix("rows."): value for name, value in etl.metrics.items() if name.startswith("rows.")}
    data = lineage["data"]
    return CardData(snapshot=lineage["snapshot"], digest=data["digest"], fingerprint=data["fingerprint"], rows=rows, **times)


def _beside(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for name, value in sorted(metrics.items()):
        who, _, metric = name.partition(".")
        if who in CONTENDERS:
            found.setdefault(metric, {})[who] = value
    return found
