"""Training task made from pairs alone, as etl makes it from a spec: key codes, rows, catalogue and counts.

The catalogue has the items of the pairs. Without times, rows have a fixed random order, so the newest rows of a user are a random part."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, Tables, compile_graph
from pipelines.features.reading import Reads
from pipelines.inputs.tables import FeatureTable
from pipelines.models.family import Task
from pipelines.models.popularity_baseline import fit_popularity
from shared.contracts.features import Categorify
from shared.contracts.models import Model
from shared.domain.errors import BadData

USER, ITEM, TIME = "user", "item", "time"
ROW_GROUP = 65_536
_SCHEMA = pl.Schema({USER: pl.Int64(), ITEM: pl.Int64(), TIME: pl.Int64()})


def prepare(pairs: pl.DataFrame, model: Model, reads: Reads, folder: Path, log: logging.Logger) -> Task:
    """Writes the task's files to the folder. `reads` is the reading mode of the family.

    `pairs` has `user` and `item` as int64, and optionally `time` (seconds) and `label` (1 is positive, 0 is not; default 1)."""
    for side in (USER, ITEM):
        if pairs[side].n_unique() < 2:
            raise BadData(f"the training data has {'one' if len(pairs) else 'no'} {side}: at least two are needed")
    folder.mkdir(parents=True, exist_ok=True)
    graph = graph_of_keys(pairs, reads)
    items = pairs[ITEM].unique().sort()
    rows = folder / "train.parquet"
    _rows(pairs, graph, items).write_parquet(rows, row_group_size=ROW_GROUP, compression="lz4", statistics=False)
    catalogue = FeatureTable({ITEM: graph.key(ITEM).state.coded(items)}, {})
    popularity = fit_popularity(pl.scan_parquet(rows), items, timed=TIME in pairs.columns)
    return Task(model, graph, rows, catalogue, None, popularity, log)


def graph_of_keys(pairs: pl.DataFrame, reads: Reads) -> Graph:
    """Fits a graph with a code for each user and item."""
    graph = compile_graph((Categorify(categorify=(USER, ITEM)),), Tables(USER, ITEM, TIME, _SCHEMA), reads)
    interactions = pairs.lazy().select(USER, ITEM, pl.lit(0, pl.Int64).alias(TIME))
    return graph.fit(PreparedTables(interactions, None, None, graph.row))


def _rows(pairs: pl.DataFrame, graph: Graph, items: pl.Series) -> pl.DataFrame:
    """Rows in the format of etl, the oldest first."""
    if TIME in pairs.columns:
        ordered = pairs.sort(TIME, maintain_order=True)
        time = ordered[TIME].cast(pl.Float64)
    else:
        order = np.random.default_rng(7).permutation(len(pairs))
        ordered, time = pairs[order], pl.Series(np.arange(len(pairs), dtype=np.float64))
    label = ordered["label"].cast(pl.Int8) if "label" in pairs.columns else pl.repeat(1, len(pairs), dtype=pl.Int8, eager=True)
    return pl.DataFrame(
        {
            USER: ordered[USER],
            ITEM: ordered[ITEM],
            TIME: time,
            "label": label,
            "user_code": graph.key(USER).state.coded(ordered[USER]),
            "item_row": np.searchsorted(items.to_numpy(), ordered[ITEM].to_numpy()).astype(np.int32),
        }
    )
