"""Who puts best in order what retrieval has found: an `mf` retrieves, each family scores its candidates and the whole catalogue.

    python -m benchmarks.rerank [--ratings FILE] [--seeds 3] [--candidates 100 200] [--only gbm neumf]

FILE holds who met what, as `eyas evaluate --train` takes it (ml-100k.inter, ml-1m's train.parquet); without one a synthetic set is made.
Each user's newest item is held out. A held-out item that isn't among the candidates is missed by all, so that figures are those of the
whole catalogue. Costs: seconds to train, and one call of ONNX Runtime on one thread for 500 pairs of a user, features left aside.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.report import Row, publish
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

CONTENDERS: Mapping[str, Mapping[str, Any]] = {
    "popularity": {"family": "popularity"},
    "mf": {"family": "mf"},
    "itemknn": {"family": "itemknn"},
    "ease": {"family": "ease"},
    "mlp": {"family": "mlp"},
    "neumf": {"family": "neumf"},
    "dlrm": {"family": "dlrm"},
    "wide_deep": {"family": "wide_deep"},
    "two_tower": {"family": "two_tower"},
    "session": {"family": "session"},
    "gbm": {"family": "gbm"},
    "gbm, rank": {"family": "gbm", "params": {"objective": "rank"}},
    "gbm, negatives half retrieved": {"family": "gbm", "params": {"among": "mixed"}},
    "gbm, negatives retrieved": {"family": "gbm", "params": {"among": "retrieved"}},
    "gbm, lightgbm": {"family": "gbm", "params": {"library": "lightgbm"}},
    "gbm, forest": {"family": "gbm", "params": {"library": "forest"}},
}
CALL, CALLS = 500, 200
TOP = 10
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Found:
    """What is retrieved for each held-out pair: rows of the catalogue, the best first, without what the user has."""

    users: NDArray[Any]
    targets: NDArray[Any]
    rows: NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratings", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), help="all, if not given")
    said = parser.parse_args(arguments)
    log, figures = teller("rerank"), dict[tuple[str, str], list[float]]()
    with tempfile.TemporaryDirectory(prefix="rerank-") as scratch:
        folder = Path(scratch)
        ratings = said.ratings or synthetic(folder / "synthetic.parquet")
        trial = read_trial(EvaluateRequest(train=str(ratings), models=("mf",), holdout="last", out=scratch), log)
        for seed in range(1, said.seeds + 1):
            model, task, _ = trained({"family": "mf"}, trial, folder / f"mf-{seed}", seed, log)
            assert isinstance(model, MfModel)
            found = retrieved(model, task, trial, max(said.candidates))
            for name in said.only or CONTENDERS:
                one, mine, seconds = trained(CONTENDERS[name], trial, folder / f"one-{seed}-{len(figures)}", seed, log)
                told = {"trained in": seconds} | whole(one, mine, trial, name, log) | served(one, mine, found)
                for count in said.candidates:
                    told |= reranked(one, mine, trial, found, count)
                for metric, value in told.items():
                    figures.setdefault((name, metric), []).append(value)
                log.info("%s, seed %d: %s", name, seed, ", ".join(f"{metric} {value:.4g}" for metric, value in told.items()))
    case = said.ratings.name if said.ratings else "synthetic"
    units = {"trained in": "s", "p50": "ms", "p99": "ms"}
    publish("rerank", [Row(case, f"eyas: {name}", what, units.get(what, ""), values) for (name, what), values in figures.items()])
    return 0


def synthetic(path: Path) -> Path:
    """Groups of users with a taste of their own, popular and rare items."""
    random = np.random.default_rng(1)
    users, items, likes = 1_500, 800, 60_000
    user = random.integers(0, users, 6 * likes)
    item = (items * random.random(6 * likes) ** 2).astype(np.int64)
    kept = random.random(len(user)) < np.where(user % 8 == item % 8, 0.9, 0.1)
    frame = pl.DataFrame({"user": user[kept], "item": item[kept]}).unique(maintain_order=True).head(likes)
    frame.with_columns(time=pl.int_range(len(frame))).write_parquet(path)
    return path


def trained(said: Mapping[str, Any], trial: Trial, folder: Path, seed: int, log: Any) -> tuple[Trained, Task, float]:
    model = Model.model_validate(said)
    family = family_of(model.family)
    task = prepare(trial.train, model, family.reads, folder, log)
    began = time.monotonic()
    fitted = family.train(replace(task, model=seeded(model, seed)))
    return fitted.model, task, time.monotonic() - began


def retrieved(model: MfModel, task: Task, trial: Trial, count: int) -> Found:
    users, items = codes_of(task, trial)
    cases = [(user_cases.user, int(target), user_cases.liked) for user_cases in trial.held_out.cases.users for target in user_cases.targets]
    rows = np.full((len(cases), count), -1)
    for at, (user, _, liked) in enumerate(cases):
        if user < 0:
            continue
        scores = model.every(users[user : user + 1])[0][items]
        scores[liked] = -np.inf
        rows[at] = np.argsort(-scores, kind="stable")[:count]
    return Found(np.array([one[0] for one in cases]), np.array([one[1] for one in cases]), rows)


def reranked(model: Trained, task: Task, trial: Trial, found: Found, count: int) -> dict[str, float]:
    codes, rows = codes_of(task, trial), found.rows[:, :count]
    known = np.flatnonzero(found.users >= 0)
    of = np.repeat(codes[0][found.users[known]], count)
    scores = model.score(columns(task, of, codes[1][rows[known].ravel()])).reshape(len(known), count)
    there = rows[known] == found.targets[known, None]
    mine = np.where(there, scores, -np.inf).max(axis=1)
    above, level = (scores > mine[:, None]).sum(axis=1), (scores == mine[:, None]).sum(axis=1)
    rank = np.where(there.any(axis=1), above + (level - 1) / 2, np.inf)
    hit = rank < TOP
    total = len(found.users)
    gain = np.where(hit, 1 / np.log2(np.where(hit, rank, 0) + 2), 0.0)
    return {
        f"hr@10 of {count}": float(hit.sum() / total),
        f"ndcg@10 of {count}": float(gain.sum() / total),
        f"recall@{count}": float(there.any(axis=1).sum() / total),
    }


def whole(model: Trained, task: Task, trial: Trial, name: str, log: Any) -> dict[str, float]:
    wanted = ("hr@10", "ndcg@10")
    values = judged(model, codes_of(task, trial), trial, name, log).values(wanted)
    return {metric: values[metric] for metric in wanted}


def columns(task: Task, users: NDArray[Any], items: NDArray[Any]) -> Codes:
    return {task.graph.user: users.astype(np.int32), task.graph.item: items.astype(np.int32)}


def served(model: Trained, task: Task, found: Found) -> dict[str, float]:
    """One call for one user."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.lower().SerializeToString(), options, providers=["CPUExecutionProvider"])
    random, took = np.random.default_rng(1), []
    items = task.items.columns[task.graph.item]
    wanted = [one.name for one in session.get_inputs()]
    for _ in range(CALLS + 10):
        users = np.full(CALL, 2 + random.integers(0, max(1, found.users.max())))
        asked = columns(task, users, items[random.integers(0, len(items), CALL)])
        began = time.perf_counter()
        session.run(None, {name: asked[name] for name in wanted})
        took.append(1000 * (time.perf_counter() - began))
    p50, p99 = np.percentile(took[10:], [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.exit(main())
