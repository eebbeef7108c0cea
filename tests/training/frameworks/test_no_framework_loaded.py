"""Scoring and lowering a neural model load no framework."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.requirement("T-13")
def test_scoring_and_lowering_load_no_framework() -> None:
    script = """
import sys
from pipelines.models.families import load_model
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.weights import begin
from tests.support import neural_model
model = NeuralModel(neural_model.everything(), begin(neural_model.everything(), 1))
model.score(neural_model.batch(1).columns), model.lower()
print(sorted({"keras", "tensorflow", "torch", "tf2onnx"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
