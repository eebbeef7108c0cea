"""Evaluate: candidate, baseline and the serving version on the same cases of the same holdout.

Publishes no files: its metrics are `candidate.*`, `popularity.*` and, where a version serves, `serving.*`; among them `recall@N` of the N
candidates that are retrieved, where the spec says so, and then `retrieved.*`: the candidate as it will be served, scoring those alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from pipelines.evaluation.cases import Cases, sample_cases, sampled_negatives
from pipelines.evaluation.judge import judge, judge_retrieved, labelled_rows, wanted_metrics
from pipelines.evaluation.recall import Retrieve, by_files, by_model, by_popularity, recall
from pipelines.evaluation.scorers import Scorer, model_scorer, popularity_scorer, unit_scorer
from pipelines.features.graph import load_graph
from pipelines.loaders.meetings import Meetings, read_meetings, read_raw
from pipelines.loaders.published import Published
from pipelines.loaders.tables import USERS
from pipelines.models.families import load_model
from pipelines.models.popularity import POPULARITY, load_popularity
from pipelines.models.retriever import IS_BESIDE, load_retriever
from pipelines.stages.runner import Context, Outcome, main
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.serving.signature import Signature


def run(context: Context) -> Outcome:
    spec, log, started = context.spec.recommender, context.log, time.monotonic()
    seed = spec.model.train.seed
    train, holdout, history = (pl.scan_parquet(context.fetch("etl", f"{name}.parquet")) for name in ("train", "holdout", "history"))
    items = pl.read_parquet(context.fetch("etl", "items.parquet"), columns=[spec.schema_.item])
    cases = sample_cases(holdout, history, items[spec.schema_.item], spec.serve.not_seen is None, seed)
    log.info("%s of %s held-out positives are ranked in a catalogue of %s", _n(cases.count), _n(cases.found), _n(cases.catalogue))
    metrics = wanted_metrics(spec)
    counts = {metric.negatives for metric in metrics if metric.negatives is not None}
    negatives = {count: sampled_negatives(cases, count, seed) for count in sorted(counts)}
    labelled = labelled_rows(holdout, seed)

    graph = load_graph(context.fetcher("etl"))
    meetings = read_meetings(context.fetcher("etl"), context.has("etl", USERS), graph)
    values: dict[str, float] = {}
    scorers: dict[str, Scorer] = {}
    facts: dict[str, Any] = {}
    for name, contender in _contenders(context, meetings, facts):
        scorers[name] = contender
        found = judge(contender, cases, negatives, labelled, metrics)
        values |= {f"{name}.{metric}": value for metric, value in found.items()}
        log.info("%s: %s", name, ", ".join(f"{metric} {value:.4f}" for metric, value in found.items()))
    if spec.serve.retrieve is not None:
        candidates = spec.serve.retrieve.candidates
        for name, retrieve in _retrievers(context, meetings, cases, facts):
            found = {f"recall@{candidates}": recall(retrieve, cases, candidates)}
            values |= {f"{name}.{metric}": value for metric, value in found.items()}
            if name == "candidate":
                served = judge_retrieved(scorers[name], retrieve, candidates, cases, metrics)
                values |= {f"retrieved.{metric}": value for metric, value in served.items()}
                found |= {f"{metric} of those": value for metric, value in served.items()}
            log.info("%s: %s", name, ", ".join(f"{metric} {value:.4f}" for metric, value in found.items()))
    trained = set(train.select("user").unique().collect(engine="streaming")["user"])
    facts["cases"] = {
        "ranked": cases.count,
        "found": cases.found,
        "users": len(cases.users),
        "users_without_training_rows": sum(one.user not in trained for one in cases.users),
        "seed": seed,
    }
    return Outcome(metrics=values | {"evaluate.seconds": time.monotonic() - started}, facts=facts)


def _contenders(context: Context, meetings: Meetings, facts: dict[str, Any]) -> Iterator[tuple[str, Scorer]]:
    yield "popularity", popularity_scorer(load_popularity(context.fetch("train", POPULARITY)))
    model = load_model(context.fetcher("train"))
    yield "candidate", model_scorer(meetings, model.score)
    if context.spec.inputs.get("serving"):
        served = read(Signature, json.loads(context.fetch("serving", "signature.json").read_text()), "serving's signature.json")
        try:
            raw, own = read_raw(context.fetcher("etl"), context.has("etl", USERS), meetings), Published(served, context.fetcher("serving"))
            unit = unit_scorer(context.fetch("serving", served.file), served, raw, own)
        except Invalid as error:
            facts["serving_not_comparable"] = str(error)
            context.log.info("the serving version can't be compared: %s", error)
        else:
            if own.used:
                facts["serving_as_published"] = own.used
                context.log.info("of the serving version, as it was published with them: %s", ", ".join(own.used))
            yield "serving", unit


def _retrievers(context: Context, meetings: Meetings, cases: Cases, facts: dict[str, Any]) -> Iterator[tuple[str, Retrieve]]:
    popularity = load_popularity(context.fetch("train", POPULARITY))
    yield "popularity", by_popularity(popularity)
    model = load_retriever(context.fetcher("train"), context.has("train", IS_BESIDE))
    users = np.array([one.user for one in cases.users], dtype=np.int64)
    found = by_model(model, meetings, popularity, users)
    assert found is not None
    yield "candidate", found
    if context.has("serving", "embeddings.npz") and context.has("serving", "queries.npz"):
        yield "serving", by_files(context.fetch("serving", "embeddings.npz"), context.fetch("serving", "queries.npz"), popularity)
    elif context.spec.inputs.get("serving"):
        facts["serving_retrieves_nothing"] = "it has no vectors of users and items"


def _n(count: int) -> str:
    return f"{count:,}"


if __name__ == "__main__":
    main("evaluate", run)
