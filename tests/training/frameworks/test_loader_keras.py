"""A loader in model.fit of Keras, on TensorFlow and on torch: it learns, epochs differ, and validation sees every row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.loader import open_loader
from pipelines.loaders.progress import keras_progress
from tests.support import keras_fit
from tests.support.torch_available import torch

ROWS = 1_000


@pytest.fixture(scope="module", params=["tensorflow", "torch"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if request.param == "torch":
        torch()
    random = np.random.default_rng(0)
    item = random.integers(0, 20, ROWS).astype(np.int32)
    genres = [random.integers(1, keras_fit.GENRES, count).tolist() for count in random.integers(0, 5, ROWS)]
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    table = pa.table(
        {"id": np.arange(ROWS, dtype=np.uint32), "item": item, "genres": pa.array(genres, pa.list_(pa.int32())), "label": item % 2}
    )
    pq.write_table(table, path, row_group_size=170)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.keras_fit", str(path)],
        env=os.environ | {"KERAS_BACKEND": request.param, "TF_CPP_MIN_LOG_LEVEL": "2"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["backend"] == request.param
    return found


@pytest.mark.requirement("T-02", "T-03", "T-10")
def test_a_model_learns_and_every_epoch_validates_every_row_once(seen: dict[str, Any]) -> None:
    history = seen["history"]
    assert history["loss"][2] < history["loss"][0] / 3
    assert history["val_accuracy"][2] > 0.99
    assert (seen["rows"], seen["validated"]) == (ROWS, [3])
    assert seen["dense"][1] > 0.99


def test_epochs_differ_and_begin_where_they_are_to(seen: dict[str, Any]) -> None:
    assert seen["passes"] == seen["expected"]
    assert seen["passes"][0] != seen["passes"][1]


def test_batches_by_number_suit_any_backend_in_the_loaders_own_order(seen: dict[str, Any]) -> None:
    assert seen["plain"][2] > 0.99
    assert "set fit(shuffle=False)" in seen["shuffled"]


def test_keras_takes_ragged_lists_on_tensorflow_alone(seen: dict[str, Any]) -> None:
    wanted = "lists: column 'genres': Keras on torch takes no ragged lists; set 'padded' or Dense(size)"
    assert seen["ragged"] == (wanted if seen["backend"] == "torch" else None)


def test_progress_of_fit_says_the_loss_after_each_epoch(tmp_path: Path) -> None:
    from pipelines.models.runtime import load_keras

    pq.write_table(pa.table({"a": np.arange(50, dtype=np.float32), "label": np.arange(50) % 2}), tmp_path / "rows.parquet")
    loader = open_loader(tmp_path / "rows.parquet", batch_size=20)
    keras, said = load_keras(), list[str]()
    inputs = keras.Input((), name="a")
    model = keras.Model({"a": inputs}, keras.layers.Dense(1)(keras.layers.Reshape((1,))(inputs)))
    model.compile("sgd", "mse")
    model.fit(
        loader.as_keras(),
        epochs=2,
        validation_data=loader.as_keras(),
        verbose=0,
        shuffle=False,
        callbacks=[keras_progress(loader, said.append)],
    )
    assert [one.split(",")[0] for one in said] == ["epoch 1: batch 3 of 3", "epoch 2: batch 3 of 3"]
    assert all(", loss " in one and ", val_loss " in one and "rows/s" in one for one in said)
