"""Sequences in the served unit: the items of a request change the scores of each version whose signature takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from shared.contracts.card import CARD, Exported
from shared.serving.signature import BLANK, OUTPUT, Signature
from shared.serving.tensors import tensors
from tests.support.refitted import STEPS, TINY, Stages

SEQUENCE = {"of": "item", "by": "user", "length": 4, "liked": True}
MODELS: dict[str, dict[str, Any]] = {
    **{family: {"family": family, **STEPS[family]} for family in ("mlp", "wide_deep", "two_tower")},
    "dlrm": {"family": "dlrm", "params": {"layers": [8], "width": 4}, "train": TINY},
    "gbm": {"family": "gbm", "params": {"trees": 20, "depth": 4, "width": 0}},
}


def export(folder: Path, model: dict[str, Any], serve: dict[str, Any] | None = None, **bounds: Any) -> Stages:
    stages = Stages(folder)
    features = [{"categorify": ["user", "item"]}, {"sequence": SEQUENCE | bounds}]
    stages.run(stages.spec(model=model, features=features, **({"serve": serve} if serve else {})))
    return stages


def scores(stages: Stages, files: dict[str, Path], brought: list[int]) -> Any:
    """The scores of all items for an unknown user who brings these items."""
    served = Signature.model_validate_json(files["signature.json"].read_text())
    assert served.session is not None
    with np.load(files["catalogue.npz"]) as catalogue:
        feed = {name: catalogue[name] for name in catalogue.files}
    rows = len(feed["item"])
    feed["user"] = np.full(rows, 10**6)
    width = next(model_input.width for model_input in served.inputs if model_input.name == served.session) or 1
    feed[served.session] = np.tile(np.array(brought + [BLANK["int64"]] * (width - len(brought)), np.int64), (rows, 1))
    return onnxruntime.InferenceSession(str(files["model.onnx"])).run([OUTPUT], tensors(served, feed))[0]


@pytest.mark.requirement("U-14")
@pytest.mark.parametrize("family", MODELS)
def test_items_of_a_request_change_the_scores_of_a_model_that_reads_sequences(tmp_path: Path, family: str) -> None:
    stages = export(tmp_path, MODELS[family])
    files = stages.done["export"].files
    assert stages.done["export"].metrics["export.parity"] < 1e-5
    card = Exported.model_validate_json(files[CARD].read_text())
    assert card.recent is not None and "sequence" in card.recent
    assert np.abs(scores(stages, files, [1, 5, 9]) - scores(stages, files, [])).max() > 1e-5


@pytest.mark.requirement("U-14")
@pytest.mark.parametrize(
    ("family", "bounds", "serve"),
    [
        ("mlp", {"window": "30d"}, {}),
        ("two_tower", {"gap": "1h"}, {}),
        ("mlp", {"reverse": True}, {}),
        ("mlp", {}, {"vocabulary_limit": 0}),
    ],
)
def test_a_unit_that_cannot_extend_its_sequence_takes_no_items(
    tmp_path: Path, family: str, bounds: dict[str, Any], serve: dict[str, Any]
) -> None:
    """Likes of a request would break a bound in time; a vocabulary above the limit is not in the graph."""
    files = export(tmp_path, MODELS[family], serve, **bounds).done["export"].files
    assert Signature.model_validate_json(files["signature.json"].read_text()).session is None
    assert Exported.model_validate_json(files[CARD].read_text()).recent is None
