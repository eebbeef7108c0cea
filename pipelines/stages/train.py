"""Train: the popularity baseline and the spec's model, from what etl published.

Publishes: popularity.parquet (the baseline), model.json and what else the model's family keeps (pipelines.models.families),
training.json of a family that takes steps, where candidates are to be retrieved and the family has no vectors, those files of an `mf`
beside it (pipelines.models.retriever), and those of a further baseline, where the spec names one (pipelines.models.baseline). A warm run
starts from the parent's. A try after one that was killed goes on from its checkpoint. Of several ranks (pipelines.training.ranks) rank 0
alone has something to publish.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl

from pipelines.features.graph import load_graph
from pipelines.inputs.tables import USERS, read_table
from pipelines.models.baseline import BASELINE, train_baseline
from pipelines.models.families import check_parent, check_saved, family_of
from pipelines.models.family import MODEL, Task
from pipelines.models.own import check_trained
from pipelines.models.popularity import POPULARITY, fit_popularity, load_popularity
from pipelines.models.retriever import IS_BESIDE, fetch_beside, save_beside, train_beside
from pipelines.models.tables import report
from pipelines.stages.past import HELD, PAST, with_past
from pipelines.stages.runner import Context, Outcome, main
from pipelines.training.keeping import Keeping, rests_on
from pipelines.training.ranks import PartDone
from pipelines.training.report import DOCUMENT
from shared.domain.errors import Invalid


def run(context: Context) -> Outcome:
    spec = context.spec.recommender.model
    graph = load_graph(context.fetcher("etl"))
    parent = context.fetcher("parent") if context.spec.mode == "warm" else None
    if parent is not None:
        if not context.has("parent", MODEL):
            raise Invalid("retrain.mode: a warm run needs a parent run to start from: start a full one")
        check_parent(spec.family, parent)

    rows = context.fetch("etl", "train.parquet")
    items = pl.read_parquet(context.fetch("etl", "items.parquet"), columns=[graph.item])[graph.item]
    before = load_popularity(parent(POPULARITY)) if parent is not None else None
    popularity = fit_popularity(pl.scan_parquet(rows), items, before)
    history = context.fetch("etl", "history.parquet") if parent is not None else None
    catalogue = read_table(context.fetch("etl", "items.features.parquet"), graph, "item")
    people = read_table(context.fetch("etl", USERS), graph, "user") if context.has("etl", USERS) else None
    memory = context.spec.recommender.resources.train.memory
    warm = context.spec.recommender.retrain.warm
    rows, replayed = _replayed(context, rows) if parent is not None and spec.params.replays else (rows, 0)
    held = context.fetch("etl", HELD) if parent is not None and context.has("etl", HELD) else None
    leads = context.rank is None or context.rank.leads
    made_of = rests_on(spec, context.spec.mode, context.spec.inputs)
    keeping = Keeping(context.live, made_of, context.scratch, context.log) if leads else None
    task = Task(spec, graph, rows, catalogue, people, popularity, context.log, parent, history, memory, keeping, context.rank)
    task = replace(task, new_rows=warm.new_rows, held=held)
    try:
        fitted = family_of(spec.family, context.spec.families).train(task)
    except PartDone:
        context.log.info("rank %d has done its part", task.rank.number if task.rank is not None else 0)
        return Outcome()
    check_trained(fitted.model, spec.family)
    files = dict(fitted.model.save(context.output))
    check_saved(spec.family, files)
    files |= {POPULARITY: popularity.save(context.out(POPULARITY))}
    if fitted.report is not None:
        files[DOCUMENT] = context.out(DOCUMENT)
        files[DOCUMENT].write_text(json.dumps(fitted.report, indent=1))
    facts = {"family": spec.family, "seed": spec.train.seed, "mode": context.spec.mode, "tables": report(fitted.model.tables)}
    metrics = dict(fitted.metrics)
    if parent is not None:
        metrics["train.replayed"] = float(replayed)
    if context.spec.recommender.serve.retrieve is not None and fitted.model.embeddings(catalogue.columns) is None:
        context.log.info("'%s' has no vectors to retrieve by: an mf is trained beside it", spec.family)
        beside = train_beside(task, fetch_beside(parent) if parent is not None and context.has("parent", IS_BESIDE) else None)
        files |= save_beside(beside.model, context.output)
        metrics["train.retriever_seconds"] = beside.metrics["train.seconds"]
        facts["retriever"] = {"family": "mf", "tables": report(beside.model.tables)} | dict(beside.facts)
    if spec.baseline is not None:
        context.log.info("the baseline '%s' is trained beside it", spec.baseline)
        baseline = train_baseline(task, parent, lambda name: context.has("parent", name))
        files |= save_beside(baseline.model, context.output, BASELINE)
        metrics["train.baseline_seconds"] = baseline.metrics["train.seconds"]
        facts["baseline"] = {"family": spec.baseline, "tables": report(baseline.model.tables)} | dict(baseline.facts)
    return Outcome(files, metrics, facts | dict(fitted.facts))


def _replayed(context: Context, rows: Path) -> tuple[Path, int]:
    """With older rows among them, as many as the spec asks for."""
    share, seed = context.spec.recommender.retrain.warm.replay, context.spec.recommender.model.train.seed
    if not share or not context.has("etl", PAST):
        return rows, 0
    path = context.scratch / "replayed.parquet"
    count = with_past(rows, context.fetch("etl", PAST), share, seed, path)
    context.log.info("%s older rows are trained on again", f"{count:,}")
    return path, count


if __name__ == "__main__":
    main("train", run)
