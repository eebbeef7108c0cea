"""Views of pages through the stages as processes: what was seen right before tells what is liked, and nothing else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import polars as pl
import pytest
from onnx import numpy_helper

from shared.contracts.stage import Manifest
from shared.domain.pages import page_key
from tests.support.stage_runner import ITEMS, StageRunner

ROWS, USERS = 4_000, 300
SEQUENCE = {"of": "movieId", "by": "userId", "length": 1, "gap": "1h"}


def log() -> pl.DataFrame:
    """Somebody looks at a page, and half a minute later rates a film: it is liked if the page was the sale."""
    random = np.random.default_rng(5)
    user, item, sale = (random.integers(0, most, ROWS) for most in (USERS, ITEMS, 2))
    at = 1.6e9 + np.arange(ROWS) * 60.0
    rated = pl.DataFrame({"userId": user, "movieId": item, "rating": np.where(sale, 5.0, 1.0), "at": at})
    seen = pl.DataFrame({"userId": user, "page": np.where(sale, "sale", "help"), "at": at - 30})
    return pl.concat([rated, seen], how="diagonal").sort("at")


def run(runner: StageRunner, name: str, pages: bool, **more: Any) -> dict[str, Manifest]:
    known = runner.recommender
    changes = {
        "schema": known["schema"] | {"page": "page"},
        "features": [{"categorify": ["userId", "movieId"]}, {"sequence": SEQUENCE | {"pages": pages}}],
        "model": {"params": {"layers": [16]}, "train": {"epochs": 4, "batch_size": 128}},
        "split": {"by": "leave_last_out"},  # an evaluation asks of a user's first moment of the holdout
        "gates": [{"metric": "auc", "min": 0.0}, {"parity": 1e-5}],
        **more,
    }
    return runner.run(name, {}, recommender=known | changes)


@pytest.mark.requirement("G-16")
def test_a_model_learns_from_pages_and_is_served_what_was_newest(tmp_path: Path) -> None:
    runner = StageRunner(tmp_path)
    log().write_parquet(tmp_path / "ratings.parquet")
    blind, seeing = run(runner, "blind", False), run(runner, "seeing", True)
    assert blind["evaluate"].metrics["candidate.auc"] < 0.6
    assert seeing["evaluate"].metrics["candidate.auc"] > 0.9
    for made in (blind, seeing):
        assert made["etl"].metrics["rows.train"] + made["etl"].metrics["rows.holdout"] == ROWS
        assert made["etl"].facts["rows"]["pages"] == ROWS
        assert made["export"].metrics["export.parity"] < 1e-5
    popular = [np.load(runner.fetch(one["export"], "popular.npy"), allow_pickle=False) for one in (blind, seeing)]
    assert popular[0].tolist() == popular[1].tolist() and sorted(popular[1]) == list(range(ITEMS))
    graph = onnx.load(str(runner.fetch(seeing["export"], "model.onnx"))).graph
    keys = {key for node in graph.node for one in node.attribute if one.name == "keys_int64s" for key in one.ints}
    assert {page_key("sale"), page_key("help")} <= keys
    assert any(numpy_helper.to_array(one).shape == (USERS + 1, 1) for one in graph.initializer), "what was newest of each user"
