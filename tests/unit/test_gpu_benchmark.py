"""The benchmark of the device: its model, its batches, and that it says on what it ran."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pytorch import torch as installed

torch = installed()

from benchmarks import gpu  # noqa: E402

ROOT = Path(__file__).parents[2]


def test_the_model_is_the_published_one() -> None:
    architecture = gpu.model(1)
    assert [(one.cardinality, one.width) for one in architecture.tables] == [(138_493, 192), (26_744, 192)]
    shapes = architecture.shapes
    assert [shapes[f"hidden_{at}/kernel"] for at in range(3)] == [(256, 256), (256, 128), (128, 64)]
    assert shapes["score/kernel"] == (128, 1)


def test_its_batches_are_likes_by_a_power_law_and_four_negatives_each() -> None:
    source = gpu.Source(torch.device("cpu"), 0.001, 1_000)
    users, labels = zip(*((source(at).columns["user"], source(at).labels) for at in range(100)), strict=True)
    assert torch.cat(labels).mean() == pytest.approx(0.2, abs=0.005)
    counts = np.sort(np.bincount(torch.cat(users), minlength=138))[::-1]
    assert counts[:14].sum() > 0.4 * counts.sum() and counts.min() > 0


def test_it_says_on_which_device_it_ran_and_whose_the_published_figures_are(tmp_path: Path) -> None:
    said = ["--scale", "0.0001", "--steps", "3", "--runs", "1", "--cases", "float16, scale 128"]
    command = [sys.executable, "-m", "benchmarks.gpu", *said]
    hidden = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=hidden)
    assert ran.returncode == 0, ran.stderr
    assert "device: cpu" in ran.stdout and ran.stdout.count("published of one V100, not ours") == 3
    found = json.loads((tmp_path / "var/bench/gpu.json").read_text())
    assert (found["device"], found["scale"], found["batch"]) == ("cpu", 0.0001, 105)
    rows = {row["metric"]: row for row in found["rows"] if row["case"] == "ml-20m's shape"}
    assert set(rows) == {"training", "scoring", "bytes of embeddings"} and all(row["value"] > 0 for row in rows.values())
