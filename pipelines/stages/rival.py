"""The serving version, as a run's candidate is compared with it.

It is the version as it serves, unless that has learned rows of this run's holdout: its refit learns all rows up to then, and a full run may
hold some of them out. Then it is the version's model before its refit, put into a unit of its own for the comparison.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.export.unit import named, write_unit
from pipelines.export.vectors import ITEMS, USERS, vectors_by_key, write_arrays
from pipelines.features.graph import load_graph
from pipelines.features.raw import signature
from pipelines.inputs.published import Published
from pipelines.inputs.tables import read_table
from pipelines.models.families import load_model
from pipelines.models.retriever import IS_BESIDE, load_retriever
from pipelines.stages.runner import Context
from shared.contracts.refit import REFIT, Refit
from shared.contracts.strict import read
from shared.serving.signature import Signature

SERVING, BEFORE_REFIT = "serving", "serving_before_refit"


@dataclass(frozen=True)
class Rival:
    served: Signature
    unit: Path
    own: Published
    """What the version was published with."""
    vectors: tuple[Path, Path] | None
    """Of items and of users, where it has any."""
    refitted: bool
    """Whether this is the version as it serves. If not, it is the version's model from before its refit."""


def find_rival(context: Context) -> Rival | None:
    """None where nothing serves, or no gate compares with it."""
    if not context.spec.inputs.get(SERVING):
        return None
    if _has_seen(context):
        return _before_refit(context)
    fetch = context.fetcher(SERVING)
    served = read(Signature, json.loads(fetch("signature.json").read_text()), "serving's signature.json")
    for name in served.files:
        fetch(name)
    there = context.has(SERVING, ITEMS) and context.has(SERVING, USERS)
    return Rival(served, fetch(served.file), Published(served, fetch), (fetch(ITEMS), fetch(USERS)) if there else None, True)


def _has_seen(context: Context) -> bool:
    """Whether it has learned rows as new as the oldest of this run's holdout."""
    if not context.has(BEFORE_REFIT, REFIT):
        return False
    newest = read(Refit, json.loads(context.fetch(BEFORE_REFIT, REFIT).read_text()), REFIT).newest
    oldest = pl.scan_parquet(context.fetch("etl", "holdout.parquet")).select(pl.col("time").min()).collect(engine="streaming").item()
    return bool(newest >= oldest)


def _before_refit(context: Context) -> Rival:
    fetch, families = context.fetcher(BEFORE_REFIT), context.spec.families
    graph, folder = load_graph(fetch), context.scratch / BEFORE_REFIT
    folder.mkdir(exist_ok=True)
    serve = context.spec.recommender.serve.model_copy(update={"vocabulary_limit": None})  # whatever is stored is the refit's
    served = signature(graph, serve)
    served = named(served, write_unit(graph, load_model(fetch, families), folder / served.file, None, serve.lists))
    vectors, codes = None, read_table(fetch("items.features.parquet"), graph, "item").columns
    found = load_retriever(fetch, context.has(BEFORE_REFIT, IS_BESIDE), families).embeddings(codes)
    if found is not None:
        keys = pl.read_parquet(fetch("items.parquet"), columns=[graph.item])[graph.item]
        sides = vectors_by_key(graph, keys, found)
        vectors = write_arrays(folder / ITEMS, sides[ITEMS]), write_arrays(folder / USERS, sides[USERS])
    context.log.info("the serving version has learned rows of this holdout: its model before the refit is compared")
    return Rival(served, folder / served.file, Published(served, context.fetcher(SERVING)), vectors, False)
