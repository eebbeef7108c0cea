"""Items with titles, and specs whose features are vectors that the ETL stage encodes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from shared.contracts.spec import RecommenderSpec
from shared.stage_process import Outcome
from tests.support.onnx_encoders import WORDS, write_words
from tests.unit.pipelines.recommender import films, ratings, spec, write

COUNT = 20
TITLES = [f"The film {number}" for number in range(COUNT)]
BASE = [{"categorify": ["userId", "movieId"]}]


def titled(folder: Path, titles: list[str | None] | None = None) -> None:
    write(folder, ratings(600), films(COUNT).with_columns(title=pl.Series(titles or TITLES, dtype=pl.String)))
    if not (folder / "words.onnx").exists():
        write_words(folder / "words.onnx")


def encoding_spec(folder: Path, entry: dict[str, Any] | None = None, **encode: Any) -> RecommenderSpec:
    of = {"of": "movieId", "width": 4, "encode": {"column": "title", "encoder": "words.onnx", "words": WORDS, **encode}}
    return spec(folder, features=[*BASE, {"vector": of | (entry or {})}])


def column(outcome: Outcome, name: str = "movieId_vector", table: str = "items") -> list[Any]:
    return pl.read_parquet(outcome.files[f"{table}.parquet"])[name].to_list()
