"""Completes a version's card at registration, when its gates and lineage are known. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from shared.contracts.card import Card, CardData, CardFit, CardGate, CardLineage, Exported
from shared.contracts.records import Lineage
from shared.contracts.stage import Manifest
from shared.domain.run import RunStatus

CONTENDERS = ("candidate", "popularity", "baseline", "serving")


def complete(
    recommender: str,
    run: str,
    status: RunStatus,
    published: Mapping[str, Manifest],
    exported: Exported | None,
    lineage: Lineage,
    parent: int | None,
) -> Card:
    """`published` has the manifest of each stage; `lineage` belongs to the version."""
    export = published["export"]
    return Card(
        version=1,
        recommender=recommender,
        run=run,
        about=exported,
        data=_data(published["etl"], lineage),
        fits=tuple(_fits(published)),
        metrics=_beside(published["evaluate"].metrics),
        serving={name: value for name, value in published["verify"].metrics.items() if "." not in name},
        gates=tuple(CardGate(gate=gate.gate, verdict=gate.verdict.value, reason=gate.reason) for gate in status.gates),
        lineage=CardLineage(
            parent=parent,
            serving=lineage.serving,
            cause=lineage.cause,
            asked_by=lineage.asked_by,
            code=lineage.code,
            spec_generation=lineage.spec_generation,
            spec_digest=lineage.spec_digest,
            seeds=dict(lineage.seeds),
            attempts={stage: attempt.attempt for stage, attempt in lineage.attempts.items()},
        ),
        files={name: file.size for name, file in sorted(export.files.items())},
    )


def _data(etl: Manifest, lineage: Lineage) -> CardData:
    split = etl.facts.get("split", {})
    times = {name: datetime.fromtimestamp(split[name], UTC) for name in ("oldest", "cut", "newest") if name in split}
    rows = {name.removeprefix("rows."): value for name, value in etl.metrics.items() if name.startswith("rows.")}
    data = lineage.data
    versions = etl.facts.get("versions", {})
    return CardData(snapshot=lineage.snapshot, digest=data.digest, fingerprint=data.fingerprint, versions=versions, rows=rows, **times)


def _fits(published: Mapping[str, Manifest]) -> Iterator[CardFit]:
    etl, train, refit = published["etl"], published["train"], published.get("refit")
    if "rows.train" in etl.metrics:
        newest = etl.facts.get("split", {}).get("newest_trained")
        yield CardFit(stage="train", rows=int(etl.metrics["rows.train"]), newest=_moment(newest), epochs=_epochs("train", train.metrics))
    if refit is not None and "rows" in refit.facts:
        epochs = _epochs("refit", refit.metrics)
        yield CardFit(stage="refit", rows=refit.facts["rows"], newest=_moment(refit.facts["newest"]), epochs=epochs)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _epochs(stage: str, metrics: Mapping[str, float]) -> int | None:
    epochs = next((metrics[f"{stage}.{name}"] for name in ("published_epoch", "trees", "epochs") if f"{stage}.{name}" in metrics), None)
    return None if epochs is None else int(epochs)


def _beside(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    by_metric: dict[str, dict[str, float]] = {}
    for name, value in sorted(metrics.items()):
        who, _, metric = name.partition(".")
        if who in CONTENDERS:
            by_metric.setdefault(metric, {})[who] = value
    return by_metric
