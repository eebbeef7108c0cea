"""A scorer that only asks remembers what it read of versions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from services.triton import scorer
from services.triton.repository import SIGNATURE
from services.triton.scorer import TritonScorer

DOCUMENT = {
    "user": "userId",
    "item": "movieId",
    "inputs": [{"name": "userId", "dtype": "int64", "side": "user"}, {"name": "movieId", "dtype": "int64", "side": "item"}],
}


def test_signatures_of_routed_versions_are_read_once_and_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "_CACHED_SIGNATURES", 5)
    reads: list[str] = []

    def files_of(recommender: str, number: int) -> dict[str, str]:
        reads.append(recommender)
        return {SIGNATURE: "file"}

    artifacts = SimpleNamespace(read=lambda file: json.dumps(DOCUMENT).encode())
    made = TritonScorer(SimpleNamespace(current=lambda: ()), files_of, artifacts)  # type: ignore[arg-type]
    many = [(f"r{n}", 1) for n in range(40)]
    for _ in range(3):
        made.refresh(many)
    assert sorted(reads) == sorted(name for name, _ in many)
    made.refresh(many[:2])
    made.know(many[0])
    made.know(many[39])
    assert reads[40:] == ["r39"]
