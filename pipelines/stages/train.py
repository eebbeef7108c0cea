"""Train: the popularity baseline and the spec's model, from what etl published.

Publishes: weights.npz and model.json (the model), popularity.parquet (the baseline). A warm run starts from the parent's.
"""

from __future__ import annotations

import time

import polars as pl

from pipelines.features.graph import load_graph
from pipelines.loaders.batches import Batches, read_codes
from pipelines.models.mlp import MODEL, WEIGHTS, Architecture, load_architecture, load_weights, save_weights
from pipelines.models.popularity import POPULARITY, fit_popularity, load_popularity
from pipelines.models.tables import plan_tables, report
from pipelines.stages.runner import Context, Outcome, main
from pipelines.training.fit import fit
from shared.domain.errors import Invalid


def run(context: Context) -> Outcome:
    spec, log = context.spec.recommender.model, context.log
    graph = load_graph(context.fetcher("etl"))
    warm = context.spec.mode == "warm"
    architecture = _architecture(context, warm)
    for table in architecture.tables:
        log.info("table %s: %s x %d, %.1f MB", table.column, f"{table.cardinality:,}", table.width, table.size / 1e6)

    train = context.fetch("etl", "train.parquet")
    items = pl.read_parquet(context.fetch("etl", "items.parquet"), columns=[graph.item])[graph.item]
    before = load_popularity(context.fetch("parent", POPULARITY)) if warm else None
    popularity = fit_popularity(pl.scan_parquet(train), items, before)

    batches = Batches(
        path=train,
        items=read_codes(context.fetch("etl", "items.codes.parquet"), graph),
        user=graph.user,
        item=graph.item,
        batch_size=spec.train.batch_size,
        negatives=spec.params.negatives,
        seed=spec.train.seed,
    )
    parent = load_weights(context.fetch("parent", WEIGHTS)) if warm else None
    log.info("starting TensorFlow")
    started = time.monotonic()
    fitted = fit(architecture, batches, spec.train, parent, log)
    files = {
        WEIGHTS: save_weights(fitted.model, context.out(WEIGHTS)),
        MODEL: architecture.save(context.out(MODEL)),
        POPULARITY: popularity.save(context.out(POPULARITY)),
    }
    metrics = {
        "train.seconds": fitted.seconds,
        "train.startup_seconds": time.monotonic() - started - fitted.seconds,
        "train.rows": float(fitted.rows),
        "train.rows_per_s": fitted.rows / fitted.seconds,
        "train.loss": fitted.losses[-1],
        "train.parameters": float(fitted.model.count_params()),
    }
    facts = {
        "seed": spec.train.seed,
        "mode": context.spec.mode,
        "losses": [round(loss, 6) for loss in fitted.losses],
        "tables": report(architecture.tables),
    }
    return Outcome(files, metrics, facts)


def _architecture(context: Context, warm: bool) -> Architecture:
    params = context.spec.recommender.model.params
    graph = load_graph(context.fetcher("etl"))
    if not warm:
        return Architecture(plan_tables(graph, params.width), params.layers)
    if not context.has("parent", WEIGHTS):
        raise Invalid("retrain.mode: a warm run needs a parent run to start from: start a full one")
    parent = load_architecture(context.fetch("parent", MODEL))
    if parent.layers != params.layers:
        raise Invalid(
            f"model.params.layers: {list(params.layers)} is not the parent's {list(parent.layers)}: a warm run can't change it,"
            " start a full one"
        )
    return Architecture(plan_tables(graph, params.width, {table.column: table.width for table in parent.tables}), params.layers)


if __name__ == "__main__":
    main("train", run)
