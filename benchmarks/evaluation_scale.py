"""Measures how long an evaluation of 20,000 users takes on large catalogues, and how much memory, for each model family.

    python -m benchmarks.evaluation_scale [--only TEXT ...]

Models have random weights of usual size: their scores take as long as those of trained models. Each user has about ten held-out positives
and a hundred interactions. Each case is measured in a process of its own: peak memory is counted from the start of the evaluation, when
the model is loaded. `processor` is the processor time of all threads. An evaluation draws users, ranks with 99 negatives, and writes the
report with its slices and intervals.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import polars as pl
import psutil

from benchmarks.harness import HIDDEN, Outcome, benchmark, memory, scratch, watched
from benchmarks.tables import answer, rows_of_runs
from pipelines.evaluation.cases import drawn_negatives, known_likes, sample_cases
from pipelines.evaluation.judge import judge
from pipelines.evaluation.report import Contender, ReportContents, Run, document
from pipelines.evaluation.scorers import is_pairwise, model_every, model_scorer
from pipelines.evaluation.slices import by_values, standard
from pipelines.models import neumf, two_tower
from pipelines.models.family import Trained
from pipelines.models.mf import MfModel
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from pipelines.training import als
from shared.contracts.evaluation import Evaluate
from shared.contracts.families import NeumfParams, TwoTowerParams

USERS, FIRST = 25_000, 2
CATALOGUES = (("mf", 60_000), ("two_tower", 60_000), ("neumf", 60_000), ("mf", 1_000_000))
NAMES = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "mrr@10", "map@10", "auc/99")
UNITS = {"users": "", "cases": "", "sampling": "s", "ranking": "s", "report": "s", "seconds": "s", "processor": "s", "memory": "MiB"}


@benchmark("evaluation_scale")
def evaluation_scale(
    only: Annotated[list[str] | None, "cases whose name begins with one of these, such as 'mf, 60'"] = None,
    case: Annotated[list[str] | None, HIDDEN] = None,
) -> Iterator[Outcome]:
    if case:
        answer(measure(case[0], int(case[1]), int(case[2]), Path(case[3])))
    with scratch() as root:
        for (family, items), users in itertools.product(CATALOGUES, (2_000, 20_000)):
            name = f"{family}, {items:,} items"
            if not name.startswith(tuple(only or [""])):
                continue
            folder = root / str(items)
            if not folder.exists():
                folder.mkdir()
                write(folder, items)
            arguments = [family, str(items), str(users), str(folder)]
            figures = watched([sys.executable, "-m", "benchmarks.evaluation_scale", "--case", *arguments]).document
            yield from rows_of_runs(name, f"eyas: at most {users:,} users", [figures], UNITS)


def model(family: str, items: int) -> Trained:
    users, count = USERS + FIRST, items + FIRST
    if family == "mf":
        return MfModel("user", "item", als.begin(users, count, 64, 1), 0.1)
    if family == "neumf":
        params = NeumfParams()
        width = params.width + params.layers[0]
        planned = neumf.architecture_of(Table("user", users, width, None), Table("item", count, width, None), params)
        return neumf.NeumfModel(planned, begin(planned, 1))
    tables = Table("user", users, 64, None), Table("item", count, 64, None)
    planned = two_tower.architecture_of(tables, (), (("user",), ("item",)), TwoTowerParams())
    weights = begin(planned, 1)
    queries = two_tower.vectors_of(planned, weights, "user", {"user": np.arange(users, dtype=np.int32)})
    return two_tower.KeyTowers(planned, weights, queries)


def write(folder: Path, items: int) -> None:
    """Interactions of every user, some of them held out; items with few and many likes."""
    random = np.random.default_rng(items)
    rows = USERS * 110
    frame = pl.DataFrame(
        {
            "user": np.minimum(random.integers(0, USERS, rows), random.integers(0, USERS, rows)),
            "item": (items * random.random(rows) ** 3).astype(np.int64),
            "label": (random.random(rows) < 0.5).astype(np.int8),
            "held_out": random.random(rows) < 0.16,
        }
    ).unique(["user", "item"], keep="first", maintain_order=True)
    frame.filter("held_out").select("user", "item", "label").write_parquet(folder / "holdout.parquet")
    before = (pl.col("label") * ~pl.col("held_out")).cast(pl.Int8)
    frame.select("user", "item", "label", before=before).write_parquet(folder / "history.parquet")


def measure(family: str, items: int, users: int, folder: Path) -> dict[str, float]:
    """One case, in a process that has done nothing else."""
    trained, random = model(family, items), np.random.default_rng(2)
    codes = random.permutation(items).astype(np.int32) + FIRST
    meetings: Any = SimpleNamespace(
        graph=SimpleNamespace(user="user", item="item"),
        items=SimpleNamespace(columns={"item": codes}),
        users=SimpleNamespace(of=lambda keys: {"user": (keys + FIRST).astype(np.int32)}),
        features=lambda users, rows: {"user": (users + FIRST).astype(np.int32), "item": codes[rows]},
    )
    holdout, history = (pl.scan_parquet(folder / f"{name}.parquet") for name in ("holdout", "history"))
    liked, bounds = random.integers(0, 500, items), Evaluate(users=users)
    genres = pl.DataFrame({"genre": random.integers(0, 20, items)}).select(pl.concat_list(pl.col("genre").cast(pl.String)))["genre"]
    every, scorer = model_every(meetings, trained), model_scorer(meetings, trained.score)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    start, cpu, began = psutil.Process().memory_info().rss / 2**20, time.process_time(), time.monotonic()

    sampled = sample_cases(holdout, history, pl.Series(range(items)), False, 1, bounds.user_limit)
    cases = sampled.first(bounds.pairwise_users(items)) if is_pairwise(trained) else sampled
    drawn = time.monotonic()
    judgement = judge(scorer, cases, {99: drawn_negatives(cases, 99, 1)}, likes=liked, every=every)
    ranked = time.monotonic()
    slices = standard(sampled.owners, known_likes(history, sampled), liked[sampled.targets], liked)
    slices += by_values("genre", genres, sampled.targets.astype(np.int64))
    contenders = [Contender(name, (Run(judgement),)) for name in ("candidate", "base")]
    document(contenders, "base", ReportContents(NAMES, NAMES[:4], slices, 1), {})
    done = time.monotonic()
    return {
        "users": judgement.ranked.users,
        "cases": len(judgement.ranked),
        "sampling": drawn - began,
        "ranking": ranked - drawn,
        "report": done - ranked,
        "seconds": done - began,
        "processor": time.process_time() - cpu,
        "memory": memory(os.getpid()) - start,
    }


if __name__ == "__main__":
    evaluation_scale()
