"""`eyas evaluate`: trains models on a file of pairs with each seed, evaluates them on test pairs, and writes a report.

All models get the same cases and negatives. A model is trained as in a run of the platform whose only features are the keys."""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.evaluation.judge import ModelEvaluation
from pipelines.evaluation.page import page
from pipelines.evaluation.report import Contender, ReportContents, Run, document, finite, of_names
from pipelines.models.families import family_of
from pipelines.trials.contenders import named_models, seeded
from pipelines.trials.judging import codes_of, forget, judged
from pipelines.trials.progress_log import teller
from pipelines.trials.saved_model import check_unseen, keep, read_saved_model, saved_model_in, undamaged
from pipelines.trials.task import prepare
from pipelines.trials.trial import Trial, read_trial, trial_slices
from shared.artifacts.writing import write_here
from shared.contracts.models import Model
from shared.contracts.strict import read
from shared.contracts.trials import BASELINE, PAGE, REPORT, EvaluatedModel, EvaluateRequest, SeedSpread
from shared.domain.errors import Invalid

MODELS = "models"
"""Folder of the saved models."""
_SHOWN = ("hr@10", "ndcg@10", "mrr@10", "coverage@10")


def evaluate(arguments: Any) -> EvaluatedModel:
    request = read(EvaluateRequest, arguments, "eyas evaluate")
    log = teller("evaluate")
    with redirect_stdout(sys.stderr):  # stdout is reserved for the answer
        return _evaluate(request, log)


def _evaluate(request: EvaluateRequest, log: logging.Logger) -> EvaluatedModel:
    began = time.monotonic()
    models = named_models(request.models, request.settings)
    for saved in request.saved:
        read_saved_model(saved_model_in(Path(saved)), request.allow)  # reports damaged files before any training
        check_unseen(Path(saved), request)
    out = _folder(Path(request.out))
    trial = read_trial(request, log)
    slices = trial_slices(trial, request)
    names, main = of_names(trial.per_case)
    contenders: list[Contender] = []
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=out) as scratch:
        for name, model in models.items():
            runs = _tried(name, model, trial, request, Path(scratch) / str(len(contenders)), log)
            contenders.append(Contender(name, runs, {"model": model.model_dump(mode="json", by_alias=True)}))
    contenders += [_saved(Path(saved), trial, request.allow, log) for saved in request.saved]
    wanted = ReportContents(names, main, slices, request.seed)
    about = {
        "title": f"{Path(request.train).name}",
        "summary": _summary(trial, request),
        "faults": trial.faults,
        "how": trial.how,
        "data": trial.data,
        "settings": request.model_dump(mode="json"),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": time.monotonic() - began,
    }
    report = finite(document(contenders, BASELINE, wanted, about))
    write_here(out / REPORT, json.dumps(report, indent=1) + "\n")
    write_here(out / PAGE, page(report))
    return _answer(report, trial, main, out)


def _tried(name: str, model: Model, trial: Trial, request: EvaluateRequest, folder: Path, log: logging.Logger) -> tuple[Run, ...]:
    """Trains and evaluates a model with each seed. A baseline that the request does not name is trained once and not saved."""
    requested = name in request.models
    seeds = request.seeds if requested else 1
    family = family_of(model.family, request.allow)
    task = prepare(trial.train, model, family.reads, folder, log)
    codes = codes_of(task, trial)
    runs: list[Run] = []
    began = time.monotonic()
    for seed in range(1, seeds + 1):
        forget()
        started = time.monotonic()
        fitted = family.train(replace(task, model=seeded(model, seed)))
        trained = time.monotonic()
        judgement = judged(fitted.model, codes, trial, f"--model {name}, seed {seed}", log)
        done = time.monotonic()
        if requested and request.keep:
            keep(Path(request.out) / MODELS / f"{name}-{seed}", fitted.model, task.graph, trial.training_pairs)
        facts = dict(fitted.metrics) | {key: value for key, value in fitted.facts.items() if key != "tables"}
        if fitted.report is not None:
            facts["report"] = fitted.report
        runs.append(Run(judgement, seed, trained - started, done - trained, facts))
        left, figures = (done - began) / seed * (seeds - seed), _figures(judgement, trial)
        values = name, seed, seeds, trained - started, done - trained, left, figures
        log.info("model: judged model=%s seed=%d of=%d training_seconds=%.1f judging_seconds=%.1f seconds_left=%.0f %s", *values)
    return tuple(runs)


def _saved(folder: Path, trial: Trial, allow: Sequence[str], log: logging.Logger) -> Contender:
    saved_model = read_saved_model(saved_model_in(folder), allow)
    began = time.monotonic()
    with undamaged(folder):
        judgement = judged(saved_model.model, saved_model.codes(trial.training_pairs), trial, f"--saved {folder}", log)
    took = time.monotonic() - began
    log.info("model: judged model=%s judging_seconds=%.1f %s", folder.name, took, _figures(judgement, trial))
    return Contender(folder.name, (Run(judgement, judge_seconds=took),), {"saved": str(folder)})


def _figures(judgement: ModelEvaluation, trial: Trial) -> str:
    wanted = (f"hr@10/{trial.per_case}", f"ndcg@10/{trial.per_case}", "hr@10", "ndcg@10")
    values = judgement.values(wanted)
    return " ".join(f"{name}={values[name]:.4f}" for name in wanted)


def _summary(trial: Trial, request: EvaluateRequest) -> list[str]:
    data = trial.data
    return [
        f"Training: {data['pairs to train on']:,} pairs of {data['users']:,} users and {data['items']:,} items."
        f" Test: {data['test pairs']:,} pairs. {request.seeds} {'seed' if request.seeds == 1 else 'seeds'}."
    ]


def _answer(report: Mapping[str, Any], trial: Trial, main: tuple[str, ...], out: Path) -> EvaluatedModel:
    rows = []
    for name, model in report["models"].items():
        metrics = {
            metric: SeedSpread(**{key: model["metrics"][metric][key] for key in ("mean", "std", "seeds")})
            for metric in dict.fromkeys((*main, *_SHOWN))
            if metric in model["metrics"]
        }
        rows.append(EvaluatedModel.Row(model=name, metrics=metrics, minutes=model["minutes"].get("train", {}).get("mean")))
    return EvaluatedModel(rows=tuple(rows), faults=trial.wrong, report=str(out / REPORT), page=str(out / PAGE))


def _folder(out: Path) -> Path:
    """Checks the folder before hours of training."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(prefix=".trial-", dir=out).cleanup()
    except OSError as error:
        raise Invalid(f"--out {out}: cannot create or write the folder: {error.strerror}: choose another folder") from None
    if occupied := next((name for name in (REPORT, PAGE) if (out / name).is_dir()), None):
        raise Invalid(f"--out {out}: it has a folder '{occupied}' in place of the report: choose another folder")
    return out
