"""Measures how long an evaluation of 20,000 users takes on large catalogues, and how much memory, for each model family.

The first case of each family computes 10 million scores only: that was the limit of an evaluation in earlier versions of Eyas.

    python -m benchmarks.evaluation_scale [--only TEXT ...]

Models have random weights of usual size: their scores take as long as those of trained models. Each user has about ten held-out positives
and a hundred interactions. Each case is measured in a process of its own: peak memory is counted from the start of the evaluation, when
the model is loaded. `processor` is the processor time of all threads. An evaluation draws users, ranks with 99 negatives, and writes the
report with its slices and intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks.report import Row, peak, publish
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
BEFORE = 10_000_000
"""The limit of scores in earlier versions."""
NAMES = ("hr@10", "ndcg@10", "hr@10/99", "ndcg@10/99", "mrr@10", "map@10", "auc/99")


@dataclass(frozen=True)
class Case:
    family: str
    items: int
    users: int
    pairs: int = Evaluate().pairs

    @property
    def name(self) -> str:
        return f"{self.family}, {self.items:,} items"


def cases() -> list[Case]:
    sizes = (("mf", 60_000), ("two_tower", 60_000), ("neumf", 60_000), ("mf", 1_000_000))
    return [Case(family, items, users) for family, items in sizes for users in (BEFORE // items, 2_000, 20_000)]


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
    """Interactions of every user, some of them held out; items that few and many like."""
    random = np.random.default_rng(items)
    rows = USERS * 110
    frame = pl.DataFrame(
        {
            "user": np.minimum(random.integers(0, USERS, rows), random.integers(0, USERS, rows)),
            "item": (items * random.random(rows) ** 3).astype(np.int64),
            "label": (random.random(rows) < 0.5).astype(np.int8),
            "held": random.random(rows) < 0.16,
        }
    ).unique(["user", "item"], keep="first", maintain_order=True)
    frame.filter("held").select("user", "item", "label").write_parquet(folder / "holdout.parquet")
    before = (pl.col("label") * ~pl.col("held")).cast(pl.Int8)
    frame.select("user", "item", "label", before=before).write_parquet(folder / "history.parquet")


def measure(case: Case, folder: Path) -> dict[str, float]:
    """One case, in a process that has done nothing else."""
    trained, random = model(case.family, case.items), np.random.default_rng(2)
    codes = random.permutation(case.items).astype(np.int32) + FIRST
    meetings: Any = SimpleNamespace(
        graph=SimpleNamespace(user="user", item="item"),
        items=SimpleNamespace(columns={"item": codes}),
        users=SimpleNamespace(of=lambda keys: {"user": (keys + FIRST).astype(np.int32)}),
        features=lambda users, rows: {"user": (users + FIRST).astype(np.int32), "item": codes[rows]},
    )
    holdout, history = (pl.scan_parquet(folder / f"{name}.parquet") for name in ("holdout", "history"))
    liked, bounds = random.integers(0, 500, case.items), Evaluate(users=case.users, pairs=case.pairs)
    genres = pl.DataFrame({"genre": random.integers(0, 20, case.items)}).select(pl.concat_list(pl.col("genre").cast(pl.String)))["genre"]
    every, scorer = model_every(meetings, trained), model_scorer(meetings, trained.score)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    start, cpu, begun = psutil.Process().memory_info().rss / 2**20, time.process_time(), time.monotonic()

    sampled = sample_cases(holdout, history, pl.Series(range(case.items)), False, 1, bounds.user_limit)
    judged_cases = sampled.first(bounds.pairwise_users(case.items)) if is_pairwise(trained) else sampled
    drawn, tell = time.monotonic(), _teller(case, len(judged_cases.users))
    judgement = judge(scorer, judged_cases, {99: drawn_negatives(judged_cases, 99, 1)}, likes=liked, every=every, tell=tell)
    judged = time.monotonic()
    slices = standard(sampled.owners, known_likes(history, sampled), liked[sampled.targets], liked)
    slices += by_values("genre", genres, sampled.targets.astype(np.int64))
    document(
        [Contender(name, (Run(judgement),)) for name in ("candidate", "base")], "base", ReportContents(NAMES, NAMES[:4], slices, 1), {}
    )
    done = time.monotonic()
    return {
        "users": judgement.ranked.users,
        "cases": len(judgement.ranked),
        "sampling": drawn - begun,
        "ranking": judged - drawn,
        "report": done - judged,
        "seconds": done - begun,
        "processor": time.process_time() - cpu,
        "memory": peak(os.getpid()) - start,
    }


def _teller(case: Case, users: int) -> Any:
    done, reported = 0, time.monotonic()

    def tell(more: int) -> None:
        nonlocal done, reported
        done += more
        if time.monotonic() - reported > 10:
            reported = time.monotonic()
            sys.stderr.write(f"{case.name}: {done:,} of {users:,} users ranked\n")

    return tell


UNITS = {"sampling": "s", "ranking": "s", "report": "s", "seconds": "s", "processor": "s", "memory": "MiB"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name begins with one of these, such as 'mf, 60'")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        sys.stdout.write(json.dumps(measure(Case(**json.loads(options.one[0])), Path(options.one[1]))))
        return 0
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="evaluation-scale-") as scratch:
        for case in (case for case in cases() if case.name.startswith(tuple(options.only))):
            folder = Path(scratch) / str(case.items)
            if not folder.exists():
                folder.mkdir()
                write(folder, case.items)
            command = [sys.executable, "-m", "benchmarks.evaluation_scale", "--one", json.dumps(asdict(case)), str(folder)]
            measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603
            numbers = ", ".join(f"{name} {value:,.1f}" for name, value in measured.items())
            sys.stdout.write(f"{case.name}, at most {case.users:,} users: {numbers}\n")
            sys.stdout.flush()
            who = f"eyas: at most {case.users:,} users" + (" (10 million scores)" if case.users == BEFORE // case.items else "")
            rows += [Row(case.name, who, name, UNITS.get(name, ""), [value]) for name, value in measured.items()]
    publish("evaluation_scale", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
