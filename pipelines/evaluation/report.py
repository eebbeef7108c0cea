"""The report of an evaluation: each metric with its spread over seeds and its interval over users, and the data and settings.

The command line and the evaluate stage share this document; `pipelines/evaluation/page.py` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.evaluation.intervals import LEVEL, Interval, difference, intervals
from pipelines.evaluation.judge import ModelEvaluation
from pipelines.evaluation.per_user import PerUser, observe
from pipelines.evaluation.ranking import SHOWN
from pipelines.evaluation.slices import Slice

VERSION = 1
CURVE = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)
Document = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A judged training of a contender."""

    judgement: ModelEvaluation
    seed: int | None = None
    train_seconds: float | None = None
    judge_seconds: float | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    """Training metrics of the family."""


@dataclass(frozen=True)
class Contender:
    name: str
    runs: tuple[Run, ...]
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportContents:
    """Metrics and slices of a report; `main` are the metrics of slices, differences and plots."""

    names: tuple[str, ...]
    main: tuple[str, ...]
    slices: tuple[Slice, ...]
    seed: int


def of_names(negatives: int | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns all ranking metrics, and the main ones; sampled metrics only if there are negatives."""
    full = ("hr@10", "ndcg@10", "hr@1", "hr@5", "hr@20", "mrr@10", "mrr", f"recall@{SHOWN}", f"map@{SHOWN}")
    main = ("hr@10", "ndcg@10")
    if negatives is None:
        return full, main
    sampled = tuple(f"{name}/{negatives}" for name in ("hr@10", "ndcg@10", "hr@1", "hr@5", "mrr"))
    return (*sampled, f"auc/{negatives}", *full), (*sampled[:2], *main)


def document(contenders: Sequence[Contender], baseline: str, wanted: ReportContents, about: Mapping[str, Any]) -> Document:
    """Builds the report; the values of the first contender that is not the baseline are also at the top level."""
    first = next((contender for contender in contenders if contender.name != baseline), contenders[0])
    base = next((contender for contender in contenders if contender.name == baseline), None)
    models = {contender.name: _of(contender, base if base is not contender else None, wanted) for contender in contenders}
    own = models[first.name]
    begin = {"version": VERSION, "model": first.name, "baseline": baseline, **own["metrics"], "minutes": own["minutes"]}
    return begin | {"models": models, "level": LEVEL, **about}


def spread(values: Sequence[float]) -> Document:
    """Describes values by seed; `std` is the sample's, and 0 for a single value."""
    return {
        "mean": float(np.mean(values)),
        "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "seeds": len(values),
        "values": [float(value) for value in values],
    }


def _of(contender: Contender, base: Contender | None, wanted: ReportContents) -> Document:
    ranked = contender.runs[0].judgement.ranked
    parts = [part for part in wanted.slices if part.chosen[: len(ranked)].any()]
    looked = {("", name): observed for name, observed in _averaged(contender, wanted.names, None).items()}
    for part in parts:
        looked |= {(part.name, name): observed for name, observed in _averaged(contender, wanted.main, part).items()}
    apart = {}
    if base is not None:
        theirs, users = _averaged(base, wanted.main, None), min(ranked.users, base.runs[0].judgement.ranked.users)
        apart = {("less", name): difference(looked["", name].first(users), theirs[name].first(users)) for name in wanted.main}
    sure = intervals(looked | apart, wanted.seed)
    each = [run.judgement.values(wanted.names) for run in contender.runs]
    metrics = {name: spread([values[name] for values in each]) for name in each[0] if all(name in values for values in each)}
    for name in wanted.names:
        metrics[name]["interval"] = sure["", name]
    return {
        **contender.about,
        "cases": len(ranked),
        "users": ranked.users,
        "metrics": metrics,
        "slices": {part.name: _slice(contender, part, wanted, sure) for part in parts},
        "against_baseline": {name: {"difference": observed.mean, "interval": sure["less", name]} for (_, name), observed in apart.items()},
        "curves": _curves(contender, wanted),
        "calibration": _calibration(contender.runs[0].judgement),
        "runs": [_run(run) for run in contender.runs],
        "minutes": {
            phase: spread([seconds / 60 for seconds in durations])
            for phase, durations in (("train", _seconds(contender, "train_seconds")), ("judge", _seconds(contender, "judge_seconds")))
            if durations
        },
    }


def _averaged(contender: Contender, names: Sequence[str], part: Slice | None) -> dict[str, PerUser]:
    """Returns the values of each case, on average over the seeds."""
    by_seed = [observe(run.judgement.ranked, names, None if part is None else part.chosen) for run in contender.runs]
    return {name: PerUser(by_seed[0][name].owners, np.mean([each[name].values for each in by_seed], axis=0)) for name in names}


def _slice(contender: Contender, part: Slice, wanted: ReportContents, sure: Mapping[tuple[str, str], Interval | None]) -> Document:
    each = [observe(run.judgement.ranked, wanted.main, part.chosen) for run in contender.runs]
    metrics = {name: spread([values[name].mean for values in each]) | {"interval": sure[part.name, name]} for name in wanted.main}
    owners = contender.runs[0].judgement.ranked.owners
    owners = owners[part.chosen[: len(owners)]]
    return {"rule": part.rule, "cases": len(owners), "users": len(np.unique(owners)), "metrics": metrics}


def _curves(contender: Contender, wanted: ReportContents) -> Document:
    """Returns the hit rate by the length of the list."""
    curves: Document = {"at": CURVE, "full": _curve([run.judgement.ranked.full for run in contender.runs])}
    for count in contender.runs[0].judgement.ranked.sampled:
        if any(name.endswith(f"/{count}") for name in wanted.main):
            curves[f"sampled/{count}"] = _curve([run.judgement.ranked.sampled[count] for run in contender.runs])
    return curves


def _curve(ranks: Sequence[Any]) -> list[float]:
    return [float(np.mean([(seed_ranks <= at).mean() for seed_ranks in ranks])) for at in CURVE]


def _calibration(judgement: ModelEvaluation) -> Document | None:
    calibration = judgement.calibration
    if calibration is None:
        return None
    bins = [{"rows": bucket.rows, "score": bucket.score, "liked": bucket.liked} for bucket in calibration.bins]
    return {"log_loss": calibration.log_loss, "error": calibration.error, "ratio": calibration.ratio} | {
        "ratio_error": calibration.ratio_error,
        "bins": bins,
    }


def _run(run: Run) -> Document:
    entry = {"seed": run.seed, "train_seconds": run.train_seconds, "judge_seconds": run.judge_seconds, "training": dict(run.training)}
    if run.judge_seconds:
        entry["judged_users_per_s"] = run.judgement.ranked.users / run.judge_seconds
    return {name: value for name, value in entry.items() if value is not None}


def _seconds(contender: Contender, attribute: str) -> list[float]:
    return [seconds for run in contender.runs if (seconds := getattr(run, attribute)) is not None]


def finite(value: Any) -> Any:
    """Converts to JSON values; numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
