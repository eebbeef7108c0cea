"""Weights of positives: in specs, in the rows of etl, in warm runs, and in the losses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.inputs.batches import TrainingBatch
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import Invalid
from tests.support.etl_stage import Etl
from tests.unit.pipelines.recommender import ratings, spec

pytestmark = pytest.mark.requirement("U-04")
WEIGHTS = {"purchase": 5, "click": 0.5}


def shop(folder: Path, positive: Any = WEIGHTS, **changes: Any) -> RecommenderSpec:
    schema = {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "kind", "positive": positive}}
    data = {"interactions": {"uri": str(folder / "ratings.parquet"), "also": "events"}}
    return spec(folder, **{"data": data, "features": [], "schema": schema, **changes})


def test_texts_have_weights_and_their_kinds_of_events_too(tmp_path: Path) -> None:
    weighted = shop(tmp_path)
    assert weighted.weighted
    assert not shop(tmp_path, ["purchase", "click"]).weighted
    assert parse_spec(json.dumps(weighted.document())) == weighted
    kinds = weighted.feedback.all_kinds()
    assert {name: (kind.positive, kind.weight) for name, kind in kinds.items()} == {
        "click": ("always", 0.5),
        "purchase": ("always", 5.0),
        "rating": ("never", 1.0),
        "view": ("never", 1.0),
    }
    assert weighted.feedback.conversions() == {"purchase"}
    chosen = shop(tmp_path, feedback={"kinds": {"purchase": {"weight": 7}, "click": {"conversion": True}}}).feedback
    assert (chosen.weights()["purchase"], chosen.weights()["click"]) == (7, 0.5)
    assert chosen.conversions() == {"purchase", "click"}, "a change of one field keeps the others"


@pytest.mark.parametrize(
    ("positive", "message"),
    [
        ({"purchase": 0}, "the weight of 'purchase' is a number above 0, at most 1000, got 0"),
        ({"purchase": "5"}, "the weight of 'purchase' is a number above 0, at most 1000, got '5'"),
        ({"purchase": True}, "the weight of 'purchase' is a number above 0, at most 1000, got True"),
        ({"purchase": float("nan")}, "the weight of 'purchase' is a number above 0, at most 1000, got nan"),
        ({5: 2}, "only texts have weights, such as {purchase: 5, click: 1}, got {5: 2}"),
        ({}, "expected 1 to 100 different values"),
    ],
)
def test_weights_that_are_none_are_refused(tmp_path: Path, positive: Any, message: str) -> None:
    with pytest.raises((Invalid, ValueError)) as refused:
        shop(tmp_path, positive)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("family", "params", "takes"),
    [("ease", {}, False), ("gbm", {}, False), ("mf", {"loss": "softmax"}, False), ("popularity", {}, False), ("mf", {}, True),
     ("mlp", {}, True), ("two_tower", {}, True)],
)  # fmt: skip
def test_a_family_that_cannot_weight_positives_is_refused(tmp_path: Path, family: str, params: dict[str, Any], takes: bool) -> None:
    changes = {"model": {"family": family, "params": params}, "gates": [{"parity": 1e-4}]}
    if takes:
        assert shop(tmp_path, **changes).weighted
        return
    with pytest.raises((Invalid, ValueError), match=f"schema.label.positive: '{family}' cannot weight positives; list the values"):
        shop(tmp_path, **changes)


def events(folder: Path, artifacts: FsspecArtifacts) -> dict[str, Any]:
    at = datetime(2024, 2, 1, tzinfo=UTC).timestamp()
    rows = [f"{user},{user % 7},,{at + user},{('click', 'purchase', 'view')[user % 3]},," for user in range(900)]
    (folder / "events.csv").write_text("\n".join(["user,item,value,time,kind,user_id,item_id", *rows]) + "\n")
    return {"events": {"events.csv": artifacts.put(folder / "events.csv")}}


def test_rows_of_files_and_events_carry_their_weight_and_a_warm_run_knows_the_earlier_ones(tmp_path: Path, etl: Etl) -> None:
    kinds = ["purchase", "click", "view", " purchase "]
    frame = ratings(2_000).with_columns(kind=pl.Series([kinds[row % 4] for row in range(2_000)]))
    frame.write_parquet(tmp_path / "ratings.parquet")
    artifacts = FsspecArtifacts(str(tmp_path / "artifacts"))
    inputs = events(tmp_path, artifacts)
    recommender = shop(tmp_path)
    published = etl(recommender, inputs=inputs).files
    rows = pl.concat([pl.read_parquet(published[name]) for name in ("train.parquet", "holdout.parquet")])
    counted = rows.group_by("label", "weight").len().sort("label", "weight").rows()
    assert counted == [(0, 1.0, 500), (1, 0.5, 800), (1, 5.0, 1300)]
    history = pl.read_parquet(published["history.parquet"])
    largest = rows.group_by("user", "item").agg(pl.col("weight").max()).sort("user", "item")
    assert history.select("user", "item", "weight").equals(largest)

    parent = {name: artifacts.put(path) for name, path in published.items()}
    warm = etl(recommender, inputs={**inputs, "parent": parent}, mode="warm").files
    after = pl.read_parquet(warm["history.parquet"])
    assert len(after) >= len(history)
    assert after.join(history, on=["user", "item"], suffix="_before").filter(pl.col("weight") < pl.col("weight_before")).is_empty()

    flat = shop(tmp_path, ["purchase", "click"])
    assert "weight" not in pl.read_parquet_schema(etl(flat, inputs={**inputs, "parent": parent}, mode="warm").files["history.parquet"])
    frame.with_columns(pl.lit(9.0).alias("label.weight")).write_parquet(tmp_path / "ratings.parquet")
    plain = etl(flat, inputs=inputs).files
    assert "weight" not in pl.read_parquet_schema(plain["train.parquet"]), "only a spec gives weights"
    parent = {name: artifacts.put(path) for name, path in plain.items()}
    changed = pl.read_parquet(etl(recommender, inputs={**inputs, "parent": parent}, mode="warm").files["history.parquet"])
    assert set(changed["weight"]) == {1, 5}


@pytest.mark.tensorflow
def test_a_weight_counts_as_that_many_rows_in_both_losses() -> None:
    """The loss of a batch with weights is the sum over repeated rows; in the softmax, repeats have the same item, which is no negative."""
    import keras

    from pipelines.models.neural.losses import InBatch, Logistic

    random = np.random.default_rng(2)
    logits, labels = random.normal(size=(5, 1)).astype(np.float32), np.array([0, 1, 3, 2, 0], np.float32)
    repeats = np.array([1, 1, 3, 2, 1])
    weighted = float(Logistic()([keras.ops.convert_to_tensor(logits)], labels))
    repeated = float(
        Logistic()([keras.ops.convert_to_tensor(np.repeat(logits, repeats, axis=0))], np.repeat(labels > 0, repeats).astype("f4"))
    )
    assert weighted * 5 == pytest.approx(repeated * 8, rel=1e-5)

    users, items = (random.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
    loss = InBatch("u", "i", "item", np.zeros(3, np.float32))
    flat = [float(loss([users[[row]], items[[row]]], {"items": np.array([row]), "chances": np.zeros(1, "f4"), "weights": np.ones(1, "f4")}))
            for row in range(3)]  # fmt: skip
    assert flat == pytest.approx([0, 0, 0], abs=1e-5)
    batch = TrainingBatch({"item": np.arange(3)}, np.array([1, 2, 4], np.float32))
    targets = loss.targets(batch)
    alone = [float(loss([users, items], targets | {"weights": np.eye(3, dtype=np.float32)[row]})) for row in range(3)]
    assert float(loss([users, items], targets)) == pytest.approx(alone[0] + 2 * alone[1] + 4 * alone[2], rel=1e-5)
