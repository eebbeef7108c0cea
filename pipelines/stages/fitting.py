"""Fit of the spec's model on encoded rows; train uses etl's rows, refit its own.

Publishes popularity.parquet (the baseline), model.json and the family's files (pipelines.models.families), training.json for families that
train in steps, and the files of an `mf` for retrieval if the family has no vectors (pipelines.models.retriever). A warm run starts from its
parent's model. A retry continues from the checkpoint. Of several ranks (pipelines.training.ranks) only rank 0 publishes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from pipelines.features.graph import load_graph
from pipelines.inputs.tables import USERS, read_table
from pipelines.models.baseline import BASELINE, train_baseline
from pipelines.models.beside import fetch_beside, save_beside
from pipelines.models.families import check_parent, check_saved, family_of
from pipelines.models.family import MODEL, Fetch, Task
from pipelines.models.plugins import check_trained
from pipelines.models.popularity_baseline import POPULARITY, fit_popularity, load_popularity
from pipelines.models.retriever import IS_BESIDE, train_beside
from pipelines.models.tables import report
from pipelines.stages.replay import HELD, PAST, with_past
from pipelines.stages.runner import Context
from pipelines.training.calibration import UNCALIBRATED, LogitLine
from pipelines.training.checkpoints import CheckpointStore, rests_on
from pipelines.training.ranks import PartDone
from pipelines.training.report import DOCUMENT
from shared.contracts.models import Model
from shared.domain.errors import Invalid
from shared.stage_process import Outcome


@dataclass(frozen=True)
class EncodedData:
    """Rows, tables and features, under etl's file names."""

    fetch: Fetch
    has: Callable[[str], bool]


def fit(context: Context, model: Model, data: EncodedData, calibration: LogitLine = UNCALIBRATED) -> Outcome:
    """Returns files, metrics and facts of the fit; empty for ranks other than 0. A refit gives the `calibration`."""
    parent = context.fetcher("parent") if context.spec.mode == "warm" else None
    if parent is not None:
        if not context.has("parent", MODEL):
            raise Invalid("retrain.mode: a warm run needs a parent run; start a full run")
        check_parent(model.family, parent)
    task, replayed = _task(context, model, data, parent)
    task = replace(task, calibration=calibration)
    try:
        fitted = family_of(model.family, context.spec.families).train(task)
    except PartDone:
        context.log.info("rank: finished rank=%d", task.rank.number if task.rank is not None else 0)
        return Outcome()
    check_trained(fitted.model, model.family)
    files = dict(fitted.model.save(context.output))
    check_saved(model.family, files)
    files |= {POPULARITY: task.popularity.save(context.out(POPULARITY))}
    if fitted.report is not None:
        files[DOCUMENT] = context.out(DOCUMENT)
        files[DOCUMENT].write_text(json.dumps(fitted.report, indent=1))
    facts = {"family": model.family, "seed": model.train.seed, "mode": context.spec.mode, "tables": report(fitted.model.tables)}
    metrics = dict(fitted.metrics)
    if parent is not None:
        metrics["train.replayed"] = float(replayed)
    if context.spec.recommender.serve.retrieve is not None and fitted.model.embeddings(task.items.columns) is None:
        context.log.info("retrieval: training an mf, the family has no embeddings family=%s", model.family)
        beside = train_beside(task, fetch_beside(parent) if parent is not None and context.has("parent", IS_BESIDE) else None)
        files |= save_beside(beside.model, context.output)
        metrics["train.retriever_seconds"] = beside.metrics["train.seconds"]
        facts["retriever"] = {"family": "mf", "tables": report(beside.model.tables)} | dict(beside.facts)
    if model.baseline is not None:
        context.log.info("baseline: training family=%s", model.baseline)
        baseline = train_baseline(task, parent, lambda name: context.has("parent", name))
        files |= save_beside(baseline.model, context.output, BASELINE)
        metrics["train.baseline_seconds"] = baseline.metrics["train.seconds"]
        facts["baseline"] = {"family": model.baseline, "tables": report(baseline.model.tables)} | dict(baseline.facts)
    return Outcome(files, metrics, facts | dict(fitted.facts))


def _task(context: Context, model: Model, data: EncodedData, parent: Fetch | None) -> tuple[Task, int]:
    """Returns the task and the number of replayed rows."""
    spec, graph, rows = context.spec.recommender, load_graph(data.fetch), data.fetch("train.parquet")
    items = pl.read_parquet(data.fetch("items.parquet"), columns=[graph.item])[graph.item]
    before = load_popularity(parent(POPULARITY)) if parent is not None else None
    parent_report = json.loads(parent(DOCUMENT).read_text()) if parent is not None and context.has("parent", DOCUMENT) else {}
    popularity = fit_popularity(pl.scan_parquet(rows), items, before)
    rows, replayed = _replayed(context, rows, data) if parent is not None and model.params.replays else (rows, 0)
    leads = context.rank is None or context.rank.leads
    made_of = rests_on(model, context.spec.mode, context.spec.inputs)
    task = Task(
        model,
        graph,
        rows,
        read_table(data.fetch("items.features.parquet"), graph, "item"),
        read_table(data.fetch(USERS), graph, "user") if data.has(USERS) else None,
        popularity,
        context.log,
        parent,
        history=data.fetch("history.parquet") if parent is not None else None,
        memory=spec.resources.train.memory,
        keeping=CheckpointStore(context.live, made_of, context.scratch, context.log) if leads else None,
        rank=context.rank,
        negatives=parent_report.get("negatives"),
    )
    held_path = data.fetch(HELD) if parent is not None and data.has(HELD) else None
    return replace(task, new_rows=spec.retrain.warm.new_rows, holdout=held_path, ranked=spec.ranks_catalogue), replayed


def _replayed(context: Context, rows: Path, data: EncodedData) -> tuple[Path, int]:
    """Adds the spec's share of older rows; returns the file and their number."""
    share, seed = context.spec.recommender.retrain.warm.replay, context.spec.recommender.model.train.seed
    if not share or not data.has(PAST):
        return rows, 0
    path = context.scratch / "replayed.parquet"
    count = with_past(rows, data.fetch(PAST), share, seed, path)
    context.log.info("replay: older rows added rows=%d", count)
    return path, count
