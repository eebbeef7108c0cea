"""Evaluate: ranks the same cases of one holdout by the candidate, the baselines and the serving version.

Publishes report.json and report.html (pipelines.evaluation.report). Metrics: `candidate.*`, `popularity.*`, `baseline.*` if the spec names
one, `serving.*` if a version serves; slices as `candidate.hr@10{cold_users}`. With `serve.retrieve`: `recall@N` of the N retrieved
candidates, and `retrieved.*`, the candidate that scores only those. A warm run adds forgetting (pipelines.evaluation.forgetting).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.evaluation.cases import Cases, drawn_negatives, known_likes, sample_cases
from pipelines.evaluation.columns import by_table
from pipelines.evaluation.forgetting import ComparedModel, forgetting
from pipelines.evaluation.gate_metrics import Evidence, certainties, unmeasured
from pipelines.evaluation.judge import ModelEvaluation, judge, labelled_rows, ranks_of_retrieved, sliced, wanted_metrics
from pipelines.evaluation.metrics import STANDARD, is_rank_metric, rank_metric
from pipelines.evaluation.page import page
from pipelines.evaluation.per_user import PerUser
from pipelines.evaluation.ranking import by_pairs
from pipelines.evaluation.recall import Retrieve, by_files, by_model, by_popularity, recall
from pipelines.evaluation.report import Contender, ReportContents, Run, document, finite
from pipelines.evaluation.scorers import Every, Scorer, is_pairwise, model_every, model_scorer, popularity_scorer, unit_scorer
from pipelines.evaluation.slices import Slice, by_expression, standard
from pipelines.features.graph import load_graph
from pipelines.inputs.eval_pairs import EvalPairs, read_meetings, read_raw
from pipelines.inputs.tables import USERS
from pipelines.models.baseline import IS_THERE, load_baseline
from pipelines.models.families import load_model
from pipelines.models.family import Trained
from pipelines.models.popularity_baseline import POPULARITY, load_popularity
from pipelines.models.retriever import IS_BESIDE, load_retriever
from pipelines.stages.off_policy_eval import Finder, foresee
from pipelines.stages.replay import HELD
from pipelines.stages.rival import ComparedVersion, find_rival
from pipelines.stages.runner import Context, main
from shared.contracts.plans import gated_metrics
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import BROKEN, MISSING
from shared.contracts.trials import PAGE, REPORT
from shared.domain.errors import Invalid
from shared.domain.metric import FORGOTTEN, SLICES, parse_metric
from shared.stage_process import Outcome

POPULAR = "popularity"
HOW = (
    "case: a positive of the holdout that is new for its user; many users are sampled by the seed",
    "model that scores pairs of a user and an item: judged, and compared, on the first of the same users",
    "without '/': ranked in the full catalogue, without the user's known positives; hr@10/99: among 99 items that are new to the user",
    "ties: share the middle rank, so equal scores for all items earn nothing",
    "intervals: users drawn with replacement",
    "candidate: has not learned the holdout; the exported model is refitted on all rows afterwards, unless split.refit is off",
)

BEFORE_REFIT = (
    "serving: the version has learned rows of this holdout, so the model of its line's last full run, before the refit, is judged"
)


def run(context: Context) -> Outcome:
    spec, log, started = context.spec.recommender, context.log, time.monotonic()
    seed = spec.model.train.seed
    train, holdout, history = (pl.scan_parquet(context.fetch("etl", f"{name}.parquet")) for name in ("train", "holdout", "history"))
    items = pl.read_parquet(context.fetch("etl", "items.parquet"), columns=[spec.schema_.item])
    cases = sample_cases(holdout, history, items[spec.schema_.item], spec.serve.not_seen is None, seed, spec.evaluate.user_limit)
    log.info("holdout: cases drawn cases=%d positives=%d users=%d catalogue=%d", *cases.sizes)
    names = wanted_metrics(spec)
    counts = {metric.negatives for metric in map(rank_metric, filter(is_rank_metric, names)) if metric.negatives is not None}
    negatives = {count: drawn_negatives(cases, count, seed) for count in sorted(counts)}
    labelled = labelled_rows(holdout, seed)
    liked = load_popularity(context.fetch("train", POPULARITY)).counts
    slices = _slices(spec, cases, known_likes(history, cases), liked)
    more = _columns(context, cases)

    meetings = read_meetings(context.fetcher("etl"), context.has("etl", USERS), load_graph(context.fetcher("etl")))
    values: dict[str, float] = {}
    scorers: dict[str, tuple[Scorer, Every]] = {}
    facts: dict[str, Any] = {}
    silence: dict[str, dict[str, str]] = {MISSING: {}, BROKEN: {}}
    judged: list[Contender] = []
    rival = _rival(context, facts, silence[BROKEN])
    for name, scorer, every, pairwise in _contenders(context, meetings, rival, facts):
        scorers[name] = scorer, every or by_pairs(scorer, cases.catalogue)
        judged_cases = cases.first(spec.evaluate.pairwise_users(cases.catalogue)) if pairwise else cases
        begun = time.monotonic()
        try:
            judgement = judge(scorer, judged_cases, negatives, labelled, liked, every)
        except Exception as error:
            if name != "serving":
                raise
            _broken(context, silence[BROKEN], error)
            continue
        judged.append(Contender(name, (Run(judgement, judge_seconds=time.monotonic() - begun),)))
        metrics = judgement.values(names)
        values |= {f"{name}.{metric}": value for metric, value in (metrics | sliced(judgement, names, slices)).items()}
        sizes = judged_cases.count, len(judged_cases.users)
        log.info("evaluation: judged contender=%s cases=%d users=%d %s", name, *sizes, _pairs(metrics))
    evidence = Evidence({contender.name: contender.runs[0].judgement for contender in judged}, slices, labelled)
    if spec.serve.retrieve is not None:
        retrieved, measured = _retrieved(context, meetings, cases, scorers["candidate"][0], rival, names)
        evidence, values = replace(evidence, retrieved=retrieved), values | measured
    data = _counts(cases, train) | {"seed": seed}
    facts["cases"] = data | {"contenders": {name: _ranked(judgement) for name, judgement in evidence.judged.items()}}
    values |= _certainties(gated_metrics(spec), evidence, values, silence[MISSING])
    if context.spec.mode == "warm":
        values |= _forgotten(context, meetings, items[spec.schema_.item], history, facts, silence)
    if "serving_not_comparable" in facts:
        silence[MISSING]["serving"] = facts["serving_not_comparable"]
    values |= _foreseen(context, meetings, scorers["candidate"][1], items[spec.schema_.item], facts, silence)
    facts |= {name: reasons for name, reasons in silence.items() if reasons}
    how = HOW if rival is None or not rival.before_refit else (*HOW, BEFORE_REFIT)
    files = _report(context, judged, names, (*slices, *more), data | {"catalogue": cases.catalogue}, how)
    return Outcome(files, values | {"evaluate.seconds": time.monotonic() - started}, facts)


def _slices(spec: RecommenderSpec, cases: Cases, of_users: NDArray[np.int64], liked: NDArray[np.int64]) -> tuple[Slice, ...]:
    """Returns the standard slices and those that gates name by an expression."""
    of_items = liked[cases.targets]
    expressions = dict.fromkeys(part for name in gated_metrics(spec) if (part := parse_metric(name).slice) and part not in SLICES)
    of_cases = of_users[cases.owners]
    return (*standard(cases.owners, of_users, of_items, liked), *(by_expression(text, of_cases, of_items) for text in expressions))


def _ranked(judgement: ModelEvaluation) -> dict[str, int]:
    return {"users": judgement.ranked.users, "cases": len(judgement.ranked)}


def _counts(cases: Cases, train: pl.LazyFrame) -> dict[str, int]:
    new = pl.LazyFrame({"user": cases.keys}).join(train.select("user"), on="user", how="anti").select(pl.len())
    without = new.collect(engine="streaming").item()
    return {"ranked": cases.count, "found": cases.positives, "users": len(cases.users), "users_without_training_rows": without}


def _forgotten(
    context: Context,
    meetings: EvalPairs,
    items: pl.Series,
    history: pl.LazyFrame,
    facts: dict[str, Any],
    silence: dict[str, dict[str, str]],
) -> dict[str, float]:
    """Compares the candidate with its parent on earlier holdouts."""
    spec, log = context.spec.recommender, context.log
    if not context.has("etl", HELD):
        return {}
    held_path = context.fetch("etl", HELD)
    fetch, has_users = context.fetcher("parent"), context.has("parent", USERS)
    before = load_graph(fetch)
    parent_meetings = read_meetings(fetch, has_users, before)
    sides: list[ComparedModel] = []
    for model, met, keys in (
        (load_model(context.fetcher("train"), context.spec.families), meetings, items),
        (
            load_model(fetch, context.spec.families),
            parent_meetings,
            pl.read_parquet(fetch("items.parquet"), columns=[before.item])[before.item],
        ),
    ):
        sides.append(ComparedModel(model_scorer(met, model.score), model_every(met, model), keys.to_numpy(), is_pairwise(model)))
    forgotten = forgetting(pl.scan_parquet(held_path), history, sides[0], sides[1], spec.model.train.seed, spec.evaluate)
    facts["old"] = {"cases": forgotten.cases, "users": forgotten.users}
    if forgotten.why:
        silence[MISSING][f"candidate.{FORGOTTEN}"] = forgotten.why
        log.info("forgetting: not measured reason=%s", forgotten.why)
    else:
        log.info("forgetting: measured on earlier holdouts cases=%d %s", forgotten.cases, _pairs(forgotten.metrics))
    return dict(forgotten.metrics)


def _foreseen(
    context: Context, meetings: EvalPairs, candidate: Every, items: pl.Series, facts: dict[str, Any], silence: dict[str, dict[str, str]]
) -> dict[str, float]:
    foresight = foresee(context, candidate, _finder(context, meetings) if context.spec.recommender.serve.retrieve else None, items)
    facts |= foresight.facts
    silence[MISSING] |= foresight.missing
    silence[BROKEN] |= foresight.broken
    return foresight.metrics


def _retrieved(
    context: Context, meetings: EvalPairs, cases: Cases, candidate: Scorer, rival: ComparedVersion | None, names: tuple[str, ...]
) -> tuple[dict[str, PerUser], dict[str, float]]:
    """Returns the recall of retrieval by contender and case, and the candidate's metrics on the retrieved items alone."""
    assert context.spec.recommender.serve.retrieve is not None
    count = context.spec.recommender.serve.retrieve.candidates
    recalls: dict[str, PerUser] = {}
    values: dict[str, float] = {}
    for name, retrieve in _retrievers(context, meetings, cases, rival):
        served: dict[str, float] = {}
        if name == "candidate":
            ranks = ranks_of_retrieved(candidate, retrieve, count, cases)
            served = {metric: rank_metric(metric).of(ranks) for metric in names if is_rank_metric(metric) and "/" not in metric}
            recalls[name] = PerUser(cases.owners, np.isfinite(ranks).astype(np.float64))
        else:
            recalls[name] = recall(retrieve, cases, count)
        values |= {f"{name}.recall@{count}": recalls[name].mean} | {f"retrieved.{metric}": value for metric, value in served.items()}
        summary = {f"recall@{count}": recalls[name].mean} | {f"retrieved.{metric}": value for metric, value in served.items()}
        context.log.info("retrieval: judged contender=%s %s", name, _pairs(summary))
    return recalls, values


def _certainties(names: list[str], evidence: Evidence, values: dict[str, float], missing: dict[str, str]) -> dict[str, float]:
    """Returns standard errors of gated metrics; adds to `missing` why values are absent."""
    standard_errors, unsure = certainties(names, evidence)
    missing |= unsure | unmeasured(names, evidence.judged, values)
    return standard_errors


def _rival(context: Context, facts: dict[str, Any], broken: dict[str, str]) -> ComparedVersion | None:
    try:
        rival = find_rival(context)
    except Invalid as error:
        _not_comparable(context, facts, error)
        return None
    except Exception as error:  # the candidate is judged whatever is wrong with the serving version
        _broken(context, broken, error)
        return None
    if rival is not None and rival.before_refit:
        facts["serving_before_its_refit"] = True
    return rival


def _broken(context: Context, broken: dict[str, str], error: Exception) -> None:
    broken["serving"] = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    context.log.exception("serving version: evaluation failed error=%s", broken["serving"])


def _not_comparable(context: Context, facts: dict[str, Any], error: Invalid) -> None:
    facts["serving_not_comparable"] = str(error)
    context.log.info("serving version: not comparable reason=%s", error)


def _finder(context: Context, meetings: EvalPairs) -> Finder:
    popularity = load_popularity(context.fetch("train", POPULARITY))
    model = load_retriever(context.fetcher("train"), context.has("train", IS_BESIDE), context.spec.families)

    def finder(users: NDArray[np.int64]) -> Retrieve:
        retrieve = by_model(model, meetings, popularity, users)
        assert retrieve is not None
        return retrieve

    return finder


def _columns(context: Context, cases: Cases) -> tuple[Slice, ...]:
    """Slices by columns of the tables of items and users, for the report alone."""
    schema = context.spec.recommender.schema_
    items = pl.read_parquet(context.fetch("etl", "items.parquet"))
    slices = by_table(items, schema.item, items[schema.item][cases.targets])
    if not context.has("etl", "users.parquet"):
        return slices
    users = pl.Series(cases.keys[cases.owners])
    return (*slices, *by_table(pl.read_parquet(context.fetch("etl", "users.parquet")), schema.user, users))


def _report(
    context: Context, judged: list[Contender], names: tuple[str, ...], slices: tuple[Slice, ...], data: dict[str, Any], how: tuple[str, ...]
) -> dict[str, Path]:
    spec = context.spec.recommender
    about = {
        "title": f"{spec.name}, run {context.spec.run}",
        "summary": [f"{data['ranked']:,} of {data['found']:,} held-out positives of {data['users']:,} users, {data['catalogue']:,} items."],
        "how": how,
        "data": data,
        "settings": {"family": spec.model.family, "split": spec.split.model_dump(mode="json"), "mode": context.spec.mode},
    }
    main = tuple(name for name in STANDARD if name in names)
    content = finite(document(judged, POPULAR, ReportContents(names, main, slices, spec.model.train.seed), about))
    files = {REPORT: context.out(REPORT), PAGE: context.out(PAGE)}
    files[REPORT].write_text(json.dumps(content, indent=1) + "\n")
    files[PAGE].write_text(page(content))
    return files


def _contenders(
    context: Context, meetings: EvalPairs, rival: ComparedVersion | None, facts: dict[str, Any]
) -> Iterator[tuple[str, Scorer, Every | None, bool]]:
    """Yields name, scorer, full scorer, and whether the model scores pairs (then `evaluate.pairs` limits its users)."""
    popularity = load_popularity(context.fetch("train", POPULARITY))
    equal = popularity.scores
    yield POPULAR, popularity_scorer(popularity), lambda users: np.broadcast_to(equal, (len(users), len(equal))), False
    models: list[tuple[str, Trained]] = [("candidate", load_model(context.fetcher("train"), context.spec.families))]
    if context.has("train", IS_THERE):
        models.append(("baseline", load_baseline(context.fetcher("train"))))
    for name, model in models:
        yield name, model_scorer(meetings, model.score), model_every(meetings, model), is_pairwise(model)
    if rival is not None:
        try:
            raw, own = read_raw(context.fetcher("etl"), context.has("etl", USERS), meetings), rival.own
            unit = unit_scorer(rival.unit, rival.served, raw, own)
        except Invalid as error:
            _not_comparable(context, facts, error)
        else:
            if own.used:
                facts["serving_as_published"] = own.used
                context.log.info("serving version: uses the values published with it values=%s", ", ".join(own.used))
            yield "serving", unit, None, True


def _retrievers(context: Context, meetings: EvalPairs, cases: Cases, rival: ComparedVersion | None) -> Iterator[tuple[str, Retrieve]]:
    popularity = load_popularity(context.fetch("train", POPULARITY))
    yield "popularity", by_popularity(popularity)
    yield "candidate", _finder(context, meetings)(cases.keys)
    if rival is not None and rival.vectors is not None:
        yield "serving", by_files(*rival.vectors, popularity)


def _pairs(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4f}" for name, value in metrics.items())


if __name__ == "__main__":
    main("evaluate", run)
