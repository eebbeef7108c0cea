"""Rerankers of retrieved items: an `mf` retrieves, each family scores its candidates and the whole catalogue.

    python -m benchmarks.rerank [--ratings FILE] [--seeds 3] [--candidates 100 200] [--only gbm neumf]

FILE holds ratings, as `eyas evaluate --train` takes them (ml-100k.inter, ml-1m's train.parquet); without it a synthetic set is made.
Each user's newest item is held out. A held-out item that is not among the candidates is missed by all, so that figures are those of the
whole catalogue. Costs: seconds to train, and one call of ONNX Runtime on one thread for 500 pairs of a user, without features.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import Outcome, benchmark, percentiles, say, scratch, seconds_of, timed
from benchmarks.tables import rows_of_runs
from pipelines.inputs.tables import Codes
from pipelines.models.families import family_of
from pipelines.models.family import Task, Trained
from pipelines.models.mf import MfModel
from pipelines.trials.contenders import seeded
from pipelines.trials.judging import codes_of, judged
from pipelines.trials.progress_log import teller
from pipelines.trials.task import prepare
from pipelines.trials.trial import Trial, read_trial
from shared.contracts.models import Model
from shared.contracts.trials import EvaluateRequest

FAMILIES = ("popularity", "mf", "itemknn", "ease", "mlp", "neumf", "dlrm", "wide_deep", "two_tower", "session", "gbm")
CONTENDERS: Mapping[str, Mapping[str, Any]] = {
    **{family: {"family": family} for family in FAMILIES},
    "gbm, rank": {"family": "gbm", "params": {"objective": "rank"}},
    "gbm, negatives half retrieved": {"family": "gbm", "params": {"among": "mixed"}},
    "gbm, negatives retrieved": {"family": "gbm", "params": {"among": "retrieved"}},
    "gbm, lightgbm": {"family": "gbm", "params": {"library": "lightgbm"}},
    "gbm, forest": {"family": "gbm", "params": {"library": "forest"}},
}
CALL, CALLS = 500, 200
TOP = 10
WHOLE = ("hr@10", "ndcg@10")


@dataclass(frozen=True)
class Candidates:
    """Of each held-out pair: rows of the catalogue, the best first, without the user's items."""

    users: NDArray[Any]
    targets: NDArray[Any]
    rows: NDArray[Any]


@benchmark("rerank")
def rerank(
    ratings: Path | None = None,
    seeds: int = 3,
    candidates: list[int] = [100, 200],  # noqa: B006  read only
    only: Annotated[list[str] | None, "all by default", tuple(CONTENDERS)] = None,
) -> Iterator[Outcome]:
    log = teller("rerank")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in only or CONTENDERS}
    with scratch() as folder:
        data = ratings or synthetic(folder / "synthetic.parquet")
        trial = read_trial(EvaluateRequest(train=str(data), models=("mf",), holdout="last", out=str(folder)), log)
        for seed in range(1, seeds + 1):
            retriever, task, _ = train({"family": "mf"}, trial, folder / f"mf-{seed}", seed, log)
            assert isinstance(retriever, MfModel)
            retrieved = retrieve(retriever, task, trial, max(candidates))
            for number, (name, measured) in enumerate(runs.items()):
                model, task, seconds = train(CONTENDERS[name], trial, folder / f"contender-{seed}-{number}", seed, log)
                catalogue_values = judged(model, codes_of(task, trial), trial, name, log).values(WHOLE)
                figures = (
                    {"trained in": seconds} | {metric: catalogue_values[metric] for metric in WHOLE} | call_times(model, task, retrieved)
                )
                for count in candidates:
                    figures |= quality(model, task, trial, retrieved, count)
                measured.append(figures)
                say(f"{name}, seed {seed}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in figures.items()))
    for name, measured in runs.items():
        units = dict.fromkeys(measured[0], "") | {"trained in": "s", "p50": "ms", "p99": "ms"}
        yield from rows_of_runs(ratings.name if ratings else "synthetic", f"eyas: {name}", measured, units)


def synthetic(path: Path) -> Path:
    """Groups of users with a taste of their own, popular and rare items."""
    random = np.random.default_rng(1)
    users, items, likes = 1_500, 800, 60_000
    user = random.integers(0, users, 6 * likes)
    item = (items * random.random(6 * likes) ** 2).astype(np.int64)
    liked = random.random(len(user)) < np.where(user % 8 == item % 8, 0.9, 0.1)
    frame = pl.DataFrame({"user": user[liked], "item": item[liked]}).unique(maintain_order=True).head(likes)
    frame.with_columns(time=pl.int_range(len(frame))).write_parquet(path)
    return path


def train(contender: Mapping[str, Any], trial: Trial, folder: Path, seed: int, log: Any) -> tuple[Trained, Task, float]:
    model = Model.model_validate(contender)
    family = family_of(model.family)
    task = prepare(trial.train, model, family.reads, folder, log)
    seconds, fitted = timed(lambda: family.train(replace(task, model=seeded(model, seed))))
    return fitted.model, task, seconds


def retrieve(model: MfModel, task: Task, trial: Trial, count: int) -> Candidates:
    users, items = codes_of(task, trial)
    cases = [(user_cases.user, int(target), user_cases.liked) for user_cases in trial.held_out.cases.users for target in user_cases.targets]
    rows = np.full((len(cases), count), -1)
    for at, (user, _, liked) in enumerate(cases):
        if user < 0:
            continue
        scores = model.every(users[user : user + 1])[0][items]
        scores[liked] = -np.inf
        rows[at] = np.argsort(-scores, kind="stable")[:count]
    return Candidates(np.array([user for user, _, _ in cases]), np.array([target for _, target, _ in cases]), rows)


def quality(model: Trained, task: Task, trial: Trial, candidates: Candidates, count: int) -> dict[str, float]:
    codes, rows = codes_of(task, trial), candidates.rows[:, :count]
    valid = np.flatnonzero(candidates.users >= 0)
    users = np.repeat(codes[0][candidates.users[valid]], count)
    scores = model.score(columns(task, users, codes[1][rows[valid].ravel()])).reshape(len(valid), count)
    is_target = rows[valid] == candidates.targets[valid, None]
    own = np.where(is_target, scores, -np.inf).max(axis=1)
    above, equal = (scores > own[:, None]).sum(axis=1), (scores == own[:, None]).sum(axis=1)
    rank = np.where(is_target.any(axis=1), above + (equal - 1) / 2, np.inf)
    hit, total = rank < TOP, len(candidates.users)
    gain = np.where(hit, 1 / np.log2(np.where(hit, rank, 0) + 2), 0.0)
    return {
        f"hr@10 of {count}": float(hit.sum() / total),
        f"ndcg@10 of {count}": float(gain.sum() / total),
        f"recall@{count}": float(is_target.any(axis=1).sum() / total),
    }


def columns(task: Task, users: NDArray[Any], items: NDArray[Any]) -> Codes:
    return {task.graph.user: users.astype(np.int32), task.graph.item: items.astype(np.int32)}


def call_times(model: Trained, task: Task, candidates: Candidates) -> dict[str, float]:
    """Milliseconds of a call for one user."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), options, providers=["CPUExecutionProvider"])
    random, items = np.random.default_rng(1), task.items.columns[task.graph.item]
    inputs = [node.name for node in session.get_inputs()]
    seconds = []
    for _ in range(CALLS + 10):
        users = np.full(CALL, 2 + random.integers(0, max(1, candidates.users.max())))
        request = columns(task, users, items[random.integers(0, len(items), CALL)])
        feed = {name: request[name] for name in inputs}
        seconds += seconds_of(lambda feed=feed: session.run(None, feed), 1)  # type: ignore[misc]
    return percentiles(seconds[10:], 50, 99, scale=1000)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    rerank()
