"""The benchmark of faults: its slow version, and the outcome of a request."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime import InferenceSession

from benchmarks import faults
from benchmarks.faults_world import slow
from benchmarks.load import Reply


def test_a_slow_version_passes_a_trial_and_takes_its_time_over_candidates() -> None:
    session = InferenceSession(slow(10), providers=["CPUExecutionProvider"])
    rows = np.arange(200)
    assert session.run(["score"], {"user": rows, "item": rows})[0].shape == (200,)


@pytest.mark.parametrize(
    ("failure", "version", "found"),
    [
        ("", 2, "its own"),
        ("", 1, "the version before"),
        ("200: scoring unavailable", 2, "scoring unavailable"),
        ("503: 'films' serves nothing yet", 0, "503"),
        ("TimeoutError: timed out", 0, "TimeoutError: timed out"),
    ],
)
def test_what_a_request_came_to_is_told_apart(failure: str, version: int, found: str) -> None:
    assert faults.kind(Reply(0.0, 0.1, version, failure), 2) == found
