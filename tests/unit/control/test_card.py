"""The card that a version is registered with: what was proven, where it comes from, what it weighs; the same however often it is made."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from services.control.card import complete
from shared.contracts.card import CARD, Card
from shared.contracts.records import AttemptLineage, DataLineage
from shared.contracts.stage import File, Manifest, StageName, digest_of
from shared.domain.gate import GateResult, Verdict
from shared.domain.run import RunStatus
from shared.testing import records
from tests.support.simulated_platform import NAME, NOW, World

pytestmark = pytest.mark.requirement("C-04", "G-11")

NOON = datetime(1970, 1, 1, 12, tzinfo=UTC)
LINEAGE = replace(
    records.LINEAGE,
    data=DataLineage("d" * 64, "sha256:ff", {}),
    code="c1",
    serving=2,
    seeds={"train": 7},
    attempts={"etl": AttemptLineage("r9-etl-1", True, "")},
)


def manifest(stage: StageName, **more: object) -> Manifest:
    return Manifest.model_validate({"stage": stage, "run": "r9", "attempt": f"r9-{stage}-1", "started": NOW, "ended": NOW, **more})


def test_a_card_says_what_was_proven_and_where_it_comes_from() -> None:
    split = {"oldest": 0, "cut": 86_400, "newest": 172_800, "newest_trained": 43_200}
    read = {"interactions": "Delta version 12"}
    judged = {"candidate.hr@10": 0.2, "popularity.hr@10": 0.1, "serving.hr@10": 0.15, "evaluate.seconds": 1}
    published = {
        "etl": manifest("etl", metrics={"rows.train": 800, "rows.items": 20}, facts={"split": split, "versions": read}),
        "train": manifest("train", metrics={"train.seconds": 3, "train.epochs": 5, "train.published_epoch": 4}),
        "refit": manifest("refit", metrics={"refit.epochs": 4}, facts={"rows": 990, "newest": 172_800.0, "held": 10}),
        "evaluate": manifest("evaluate", metrics=judged),
        "export": manifest("export", files={"model.onnx": File(sha256="a" * 64, size=123)}),
        "verify": manifest("verify", metrics={"parity": 1e-7, "latency_p99@500": 4.5, "verify.stage_seconds": 9}),
    }
    status = RunStatus(gates=(GateResult("hr@10 better than popularity", Verdict.PASS, "hr@10 is 0.2, popularity's is 0.1 (+100.0%)"),))
    card = complete("films", "r9", status, published, None, LINEAGE, 1)
    assert card.metrics == {"hr@10": {"candidate": 0.2, "popularity": 0.1, "serving": 0.15}}
    assert card.serving == {"parity": 1e-7, "latency_p99@500": 4.5}
    assert [(one.verdict, one.reason) for one in card.gates] == [("pass", "hr@10 is 0.2, popularity's is 0.1 (+100.0%)")]
    assert (card.data.rows, card.data.fingerprint) == ({"train": 800, "items": 20}, "sha256:ff")
    assert card.data.versions == read
    assert [str(one)[:10] for one in (card.data.oldest, card.data.cut, card.data.newest)] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert (card.lineage.parent, card.lineage.serving, card.lineage.seeds, card.lineage.code) == (1, 2, {"train": 7}, "c1")
    assert [(one.stage, one.rows, one.newest, one.epochs) for one in card.fits] == [
        ("train", 800, NOON, 4),
        ("refit", 990, card.data.newest, 4),
    ]
    assert card.files == {"model.onnx": 123}


def test_a_registered_version_has_its_card_among_its_files_and_its_digest_holds_it(world: World) -> None:
    world.start_run()
    world.until(world.plane(), "registered", "run")
    version = world.registry.get(NAME, 1)
    assert version.digest == digest_of(version.files)
    card = Card.model_validate(json.loads(world.artifacts.read(version.files[CARD])))
    assert (card.recommender, card.run) == (NAME, "r1")
    assert card.metrics["auc"] == {"candidate": 0.8}
    assert [one.verdict for one in card.gates] == ["pass", "pass", "pass"]
    assert set(card.lineage.attempts) == {"etl", "train", "evaluate", "refit", "export", "verify"}
