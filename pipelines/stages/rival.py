"""Rival: the serving version's model for the comparison, trained on no row of this run's holdout.

Uses the version as it serves if its newest row is older than the holdout. Otherwise, as usual in a full run, uses the model of the last
full run of the version's line before its refit, in a unit of its own. If that model has learned rows of the holdout too, nothing is
compared.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.arrays import write_arrays
from pipelines.export.unit import named, write_unit
from pipelines.export.vectors import ITEMS, USERS, vectors_by_key
from pipelines.features.graph import load_graph
from pipelines.features.raw import signature
from pipelines.inputs.tables import read_table
from pipelines.inputs.version_values import PublishedValues
from pipelines.models.families import load_model
from pipelines.models.family import MODEL
from pipelines.models.retriever import IS_BESIDE, load_retriever
from pipelines.stages.runner import Context
from shared.contracts.refit import REFIT, Refit
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.serving.signature import Signature

SERVING, BEFORE_REFIT = "serving", "serving_before_refit"
EQUAL = 0.01
"""Maximum share of the holdout's rows that may equal the rival's training rows."""
_ROW = ["user", "item", "time"]
_REMEDY = "To accept the run without the comparison, retry it with --accept"


@dataclass(frozen=True)
class ComparedVersion:
    served: Signature
    unit: Path
    own: PublishedValues
    """Values that the version was published with."""
    vectors: tuple[Path, Path] | None
    """Vectors of items and of users, if there are any."""
    before_refit: bool = False
    """True for the model of the line's last full run before its refit, False for the version as it serves."""


def find_rival(context: Context) -> ComparedVersion | None:
    """Returns None if no version serves or no gate compares with it."""
    if not context.spec.inputs.get(SERVING):
        return None
    if _has_learned_newest(context):
        _check_older(context)
        if context.has(BEFORE_REFIT, MODEL):
            return _before_refit(context)
    fetch = context.fetcher(SERVING)
    served = read(Signature, json.loads(fetch("signature.json").read_text()), "serving's signature.json")
    for name in served.files:
        fetch(name)
    there = context.has(SERVING, ITEMS) and context.has(SERVING, USERS)
    return ComparedVersion(served, fetch(served.file), PublishedValues(served, fetch), (fetch(ITEMS), fetch(USERS)) if there else None)


def _has_learned_newest(context: Context) -> bool:
    """Returns whether the version has, or may have, learned rows as new as the oldest of this run's holdout."""
    if not context.spec.inputs.get(BEFORE_REFIT):
        return False
    if not context.has(BEFORE_REFIT, REFIT):
        return True
    return bool(
        newest_of_refit(context, BEFORE_REFIT)
        >= _only(pl.scan_parquet(context.fetch("etl", "holdout.parquet")).select(pl.col("time").min()))
    )


def newest_of_refit(context: Context, origin: str) -> float:
    """Returns the time of the newest row that a refit has learned."""
    return read(Refit, json.loads(context.fetch(origin, REFIT).read_text()), REFIT).newest


def _check_older(context: Context) -> None:
    """Raises Invalid if the model before the refit is no longer stored, or has learned more than `EQUAL` of this run's holdout."""
    if context.has(BEFORE_REFIT, REFIT) and not context.has(BEFORE_REFIT, MODEL):
        raise Invalid(f"it has learned rows of this holdout, and its model before the refit is deleted. {_REMEDY}")
    train = pl.scan_parquet(context.fetch(BEFORE_REFIT, "train.parquet"))
    holdout = pl.scan_parquet(context.fetch("etl", "holdout.parquet"))
    if _only(train.select(pl.col("time").max())) < _only(holdout.select(pl.col("time").min())):
        return
    learned, rows = (_only(part.select(pl.len())) for part in (holdout.join(train, on=_ROW, how="semi"), holdout))
    if learned > EQUAL * rows:
        raise Invalid(f"it was trained on {learned:,} of the {rows:,} rows of this holdout: the split or the data have changed. {_REMEDY}")


def _only(frame: pl.LazyFrame) -> Any:
    return frame.collect(engine="streaming").item()


def _before_refit(context: Context) -> ComparedVersion:
    fetch, families = context.fetcher(BEFORE_REFIT), context.spec.families
    graph, folder = load_graph(fetch), context.scratch / BEFORE_REFIT
    folder.mkdir(exist_ok=True)
    # The unit holds all tables: the stored values are the refit's.
    serve = context.spec.recommender.serve.model_copy(update={"vocabulary_limit": sys.maxsize})
    served = signature(graph, serve)
    served = named(served, write_unit(graph, load_model(fetch, families), folder / served.file, serve.vocabulary_limit, serve.lists))
    vectors, codes = None, read_table(fetch("items.features.parquet"), graph, "item").columns
    embeddings = load_retriever(fetch, context.has(BEFORE_REFIT, IS_BESIDE), families).embeddings(codes)
    if embeddings is not None:
        keys = pl.read_parquet(fetch("items.parquet"), columns=[graph.item])[graph.item]
        sides = vectors_by_key(graph, keys, embeddings)
        vectors = write_arrays(folder / ITEMS, sides[ITEMS]), write_arrays(folder / USERS, sides[USERS])
    context.log.info("serving version: has learned rows of this holdout, its model before the refit is compared")
    return ComparedVersion(served, folder / served.file, PublishedValues(served, context.fetcher(SERVING)), vectors, True)
