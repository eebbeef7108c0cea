"""Files of a model beside those of another one, under a prefix."""

from __future__ import annotations

from pathlib import Path

from pipelines.models.family import Fetch, Trained

BESIDE = "retriever."
"""Prefix of the file names of a retriever."""


def save_beside(model: Trained, folder: Path, beside: str = BESIDE) -> dict[str, Path]:
    inner = folder / beside.rstrip(".")
    inner.mkdir(exist_ok=True)
    return {beside + name: path for name, path in model.save(inner).items()}


def fetch_beside(fetch: Fetch, beside: str = BESIDE) -> Fetch:
    return lambda name: fetch(beside + name)
