"""Refit: fits the features and the model again on all rows, with the candidate's settings.

The candidate has learned only the older part of the data. A full run fits the features again; a warm run grows its parent's features and
continues from the parent's model. Pairs of held.parquet stay out: later warm runs measure forgetting on them (pipelines.stages.replay).

Publishes, under the names of etl and train: train.parquet and holdout.parquet without those pairs, the features of items and users, their
fitted state, features.json, past.parquet of a warm run, held.parquet, refit.json (marks a refit) and the files of a fit
(pipelines.stages.fitting) without a baseline. Metrics: the hit rate of both models on a sample of the holdout's likes, which the refitted
model has learned; a gate refuses a refit that is surely worse there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.evaluation.cases import Cases, sample_cases
from pipelines.evaluation.judge import judge
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.scorers import is_pairwise, model_every, model_scorer
from pipelines.evaluation.standard_errors import Influence, of_mean
from pipelines.features.graph import compile_graph, load_graph
from pipelines.features.prepared import EXTRA, PAGES, Prepared
from pipelines.inputs.eval_pairs import read_meetings
from pipelines.inputs.tables import USERS
from pipelines.models.chosen_settings import chosen_calibration, with_chosen_settings
from pipelines.models.families import load_model
from pipelines.models.family import Trained
from pipelines.stages.fitting import EncodedData, fit
from pipelines.stages.replay import HELD, PAST, drawn, exclude_pairs, withhold
from pipelines.stages.runner import Context, main
from shared.contracts.refit import REFIT, Refit
from shared.domain.gate import REFIT as GATE
from shared.domain.metric import certainty, count_of
from shared.stage_process import Outcome

CASES = 3_000
"""Maximum number of the holdout's likes that both models rank."""
FEWEST, PAIRS = 100, 20_000_000
"""For models that score pairs: the minimum number of users, and the maximum number of pairs beyond these users."""
TRAIN, HOLDOUT = "train.parquet", "holdout.parquet"


def run(context: Context) -> Outcome:
    started = time.monotonic()
    files, facts = _encode(context)
    seconds = time.monotonic() - started
    own = EncodedData(_overlay(context, files), lambda name: name in files or context.has("etl", name))
    model = with_chosen_settings(context.spec.recommender.model, context.fetcher("train"), lambda name: context.has("train", name))
    fitted = fit(context, model, own, chosen_calibration(context.fetcher("train")))
    if not fitted.files:
        return Outcome()
    files |= fitted.files
    metrics = {f"refit.{name.removeprefix('train.')}": value for name, value in fitted.metrics.items()}
    metrics |= {"refit.rows": float(facts["rows"]), "refit.features_seconds": seconds} | _compare(context, own)
    hit_rates = metrics[GATE.value_name], metrics[GATE.other_name]
    context.log.info("refit: compared with the candidate refitted_hr@10=%.4f candidate_hr@10=%.4f", *hit_rates)
    return Outcome(files, metrics, dict(fitted.facts) | facts)


def _overlay(context: Context, files: dict[str, Path]) -> Callable[[str], Path]:
    """Returns a function that finds a file by name: among `files` first, then among the files of etl."""
    return lambda name: files[name] if name in files else context.fetch("etl", name)


def _encode(context: Context) -> tuple[dict[str, Path], dict[str, Any]]:
    """Returns files encoded by features that are fitted on all rows, and facts."""
    train, holdout = (pl.scan_parquet(context.fetch("etl", name)) for name in (TRAIN, HOLDOUT))
    history = pl.scan_parquet(context.fetch("etl", "history.parquet"))
    withheld = withhold(train, holdout, history, pl.scan_parquet(context.fetch("etl", HELD)) if context.has("etl", HELD) else None)
    extra = [name for name in train.collect_schema() if name.startswith(EXTRA) or name == "weight"]
    train, holdout = (exclude_pairs(part.select("user", "item", "time", "label", *extra), withheld) for part in (train, holdout))
    every_row = pl.concat([train, holdout])
    ready = _prepare(context)
    before = ready.history(train, holdout, context.scratch / "history")
    ready = ready.fit(every_row, load_graph(context.fetcher("parent")) if context.spec.mode == "warm" else None, before)
    files = ready.graph.save(context.output) | ready.write_tables(context.out)
    files |= {name: context.out(name) for name in (TRAIN, HOLDOUT, HELD, REFIT)}
    rows = ready.write_part(every_row, files[TRAIN], True, before)
    ready.write_part(holdout, files[HOLDOUT], False, before, rows - int(holdout.select(pl.len()).collect(engine="streaming").item()))
    withheld.write_parquet(files[HELD])
    if context.has("etl", PAST):
        files[PAST] = context.out(PAST)
        past = exclude_pairs(pl.scan_parquet(context.fetch("etl", PAST)), withheld)
        ready.placed(past).sink_parquet(files[PAST], row_group_size=65_536, compression_level=1)
    newest = float(pl.scan_parquet(files[TRAIN]).select(pl.col("time").max()).collect(engine="streaming").item())
    about = Refit(rows=rows, newest=newest, held=len(withheld))
    files[REFIT].write_text(about.model_dump_json(indent=1))
    context.log.info("refit: rows encoded train=%d withheld=%d", rows, len(withheld))
    return files, about.model_dump(exclude={"version"}) | {"cardinalities": ready.graph.cardinalities()}


def _prepare(context: Context) -> Prepared:
    """Returns etl's tables with its features, not yet fitted."""
    fetch, fitted = context.fetcher("etl"), load_graph(context.fetcher("etl"))
    users = pl.read_parquet(fetch("users.parquet")) if context.has("etl", "users.parquet") else None
    pages = pl.scan_parquet(fetch(PAGES)) if context.has("etl", PAGES) else None
    graph = compile_graph(fitted.entries, fitted.tables, fitted.reads)
    return Prepared(graph, pl.read_parquet(fetch("items.parquet")), users, pages=pages)


def _compare(context: Context, own: EncodedData) -> dict[str, float]:
    """Compares both models on the same likes of the holdout; adds the standard error of the difference."""
    spec = context.spec.recommender
    likes = drawn(pl.scan_parquet(own.fetch(HOLDOUT)).filter(pl.col("label") == 1), CASES, spec.model.train.seed)
    items = pl.read_parquet(own.fetch("items.parquet"), columns=[spec.schema_.item])[spec.schema_.item]
    history = pl.scan_parquet(context.fetch("etl", "history.parquet"))
    cases = sample_cases(likes, history, items, spec.serve.not_seen is None, spec.model.train.seed)
    refitted, unrefitted = (load_model(fetch, context.spec.families) for fetch in (own.fetch, context.fetcher("train")))
    if is_pairwise(refitted):
        cases = cases.first(max(FEWEST, PAIRS // cases.catalogue))
    refit = _hit_rate(own, refitted, cases)
    candidate = _hit_rate(EncodedData(context.fetcher("etl"), lambda name: context.has("etl", name)), unrefitted, cases)
    metrics = {GATE.value_name: refit[0], GATE.other_name: candidate[0], count_of(GATE.value_name): float(len(cases.users))}
    return metrics | {certainty(GATE.value_name, GATE.against): refit[1].error(candidate[1])}


def _hit_rate(data: EncodedData, model: Trained, cases: Cases) -> tuple[float, Influence]:
    """Returns a model's hit rate and each user's influence on it."""
    meetings = read_meetings(data.fetch, data.has(USERS), load_graph(data.fetch))
    ranked = judge(model_scorer(meetings, model.score), cases, {}, every=model_every(meetings, model)).ranked
    observed = observe(ranked, [GATE.metric])[GATE.metric]
    return observed.mean, of_mean(observed.values, observed.owners, len(cases.users))


if __name__ == "__main__":
    main("refit", run)
