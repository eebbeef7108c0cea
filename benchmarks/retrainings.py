"""Whether gates let equal retrainings through and notice worse ones: ten retrainings on overlapping data, full and warm, by the platform's
own stages.

    python -m benchmarks.retrainings [--seeds 20] [--days 10] [--users 2000] [--workers 2]

Users and items have fixed vectors, and users like an item more often the better both fit: nothing changes with time, so a retraining by the
same spec is as good as the version before. After a first version, each retraining has two more days of rows; each becomes the version that
serves. *Worse* is the same candidate with a planted fault: the vectors of some users are noise, so that its hit rate is about 5 % lower.

A candidate is compared with the serving version in three ways:

- before: the version's model from before its refit, on the whole holdout, as the platform does where the refit has learned rows of it
- newer: the version as it serves, on the rows of the holdout that are newer than all it has learned
- as it serves: on the whole holdout, which the version has learned (wrong)

A warm retraining holds out newer rows only, so all three are one. Each gate is judged on the numbers that evaluate publishes.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.report import Row, publish
from pipelines.features.columns import FIRST
from pipelines.models.mf import VECTORS
from pipelines.stages import etl, evaluate, export, refit, train
from pipelines.stages.rival import BEFORE_REFIT
from pipelines.stages.runner import Context, Outcome
from shared.artifacts import FsspecArtifacts
from shared.contracts.plans import run_plan
from shared.contracts.refit import REFIT, Refit
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest, StageSpec
from shared.domain.gate import Gate, Verdict, judge

WORK: Mapping[str, Callable[[Context], Outcome]] = {
    "etl": etl.run,
    "train": train.run,
    "evaluate": evaluate.run,
    "refit": refit.run,
    "export": export.run,
}
MARGINS = ("0%", "1%", "2%", "5%")
ITEMS, WIDTH, A_DAY, FIRST_DAYS, STEP = 400, 8, 4_000, 15, 2
FAULTY = 0.16
"""Share of the users whose vectors are noise in a worse candidate."""
BEFORE, NEWER, SERVES = "before", "newer", "as it serves"
Verdicts = Counter[tuple[str, str, str, str, str]]
"""How often: mode, candidate, how it is compared, margin, verdict."""


def rows_of(seed: int, users: int, days: int) -> pl.DataFrame:
    """Whoever meets an item does so by chance, the popular ones more often."""
    random = np.random.default_rng((seed, 3))
    of_users, of_items = (random.normal(size=(count, WIDTH)) for count in (users, ITEMS))
    count = A_DAY * days
    user = random.integers(users, size=count)
    item = np.minimum((ITEMS * random.random(count) ** 1.5).astype(np.int64), ITEMS - 1)
    fit = np.einsum("rw,rw->r", of_users[user], of_items[item]) / np.sqrt(WIDTH)
    liked = random.random(count) < 1 / (1 + np.exp(-2.5 * (fit - 0.5)))
    at = 1.6e9 + 86400 * np.sort(random.random(count) * days)
    return pl.DataFrame({"userId": user + 1, "movieId": item + 1, "rating": np.where(liked, 5.0, 1.0), "at": at})


@dataclass
class Version:
    """By stage, what its run has published."""

    stages: dict[str, Files]

    @property
    def parent(self) -> Files:
        return self.stages["etl"] | self.stages["train"] | self.stages["refit"]

    @property
    def before_refit(self) -> Files:
        return self.stages["etl"] | self.stages["train"] | {REFIT: self.stages["refit"][REFIT]}


@dataclass
class Line:
    """Retrainings of one seed, one after the other."""

    seed: int
    mode: str
    rows: pl.DataFrame
    folder: Path
    verdicts: Verdicts = field(default_factory=Counter)
    lost: list[float] = field(default_factory=list)
    """By how much worse candidates are, on all cases."""
    count: int = 0

    def __post_init__(self) -> None:
        self.store = FsspecArtifacts(str(self.folder / "artifacts"))
        pl.DataFrame({"movieId": range(1, ITEMS + 1)}).write_parquet(self.folder / "items.parquet")

    def spec(self, day: int) -> RecommenderSpec:
        path = self.folder / f"rows-{day}.parquet"
        self.rows.filter(pl.col("at") < 1.6e9 + 86400 * day).write_parquet(path)
        return RecommenderSpec.model_validate(
            {
                "name": "films",
                "data": {"interactions": {"uri": str(path)}, "items": {"uri": str(self.folder / "items.parquet"), "key": "movieId"}},
                "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
                "model": {"family": "mf", "params": {"width": 16, "regularisation": 0.1}, "train": {"seed": self.seed}},
                "gates": [{"metric": "hr@10", "not_worse_than": "serving", "by": margin} for margin in MARGINS],
            }
        )

    def retrain(self, day: int, serving: Version | None) -> Version:
        """Judges the candidate, and a worse one, where something serves."""
        spec, mode = self.spec(day), self.mode if serving is not None else "full"
        inputs: dict[str, Files] = {}
        if serving is not None and mode == "warm":
            inputs = {"parent": serving.parent, "events": {"events.csv": self._events(day)}}
        made: dict[str, Files] = {}
        for stage in ("etl", "train"):
            made[stage] = self._files(self._run(stage, spec, mode, inputs | made))
        if serving is not None:
            self._judge(spec, mode, inputs | made, serving)
        refitted = self._files(self._run("refit", spec, mode, inputs | made))
        exported = self._files(self._run("export", spec, mode, {"etl": made["etl"] | refitted, "train": refitted}))
        return Version(made | {"refit": refitted, "export": exported})

    def _judge(self, spec: RecommenderSpec, mode: str, inputs: dict[str, Files], serving: Version) -> None:
        compared: dict[str, dict[str, Files]] = {SERVES: {"serving": serving.stages["export"]}}
        if mode == "full":
            compared[BEFORE] = compared[SERVES] | {BEFORE_REFIT: serving.before_refit}
            compared[NEWER] = compared[SERVES] | {"etl": inputs["etl"] | {"holdout.parquet": self._newer(inputs["etl"], serving)}}
        values = {}
        for candidate, trained in (("equal", inputs["train"]), ("worse", self._faulty(inputs["train"]))):
            for how, more in compared.items():
                outcome = self._run("evaluate", spec, mode, {**inputs, "train": trained, **more})
                values[candidate, how] = outcome.metrics["candidate.hr@10"]
                told = Manifest.model_validate(_MANIFEST | {"metrics": outcome.metrics, "facts": outcome.facts})
                for margin, gate in zip(MARGINS, _compared(spec, mode), strict=True):
                    found = judge(gate, told.metrics, True, told.silence())
                    self.verdicts[mode, candidate, how, margin, str(found.verdict)] += 1
                    self.verdicts[mode, candidate, how, margin, "accepted"] += found.verdict is Verdict.PASS or found.accepted != ""
        self.lost.append(1 - values["worse", SERVES] / values["equal", SERVES])

    def _newer(self, files: Files, serving: Version) -> Any:
        about = Refit.model_validate_json(self.store.read(serving.stages["refit"][REFIT]))
        path = self.folder / "newer.parquet"
        rows = pl.read_parquet(self.store.fetch(files["holdout.parquet"], self.folder / "holdout.parquet"))
        rows.filter(pl.col("time") > about.newest).write_parquet(path)
        return self.store.put(path)

    def _faulty(self, files: Files) -> Files:
        with np.load(self.store.fetch(files[VECTORS], self.folder / "vectors.npz"), allow_pickle=False) as stored:
            users, items = stored["users"], stored["items"]
        random = np.random.default_rng((self.seed, self.count))
        broken = FIRST + np.flatnonzero(random.random(len(users) - FIRST) < FAULTY)
        users[broken] = random.normal(size=users[broken].shape) * users.std()
        with (self.folder / "faulty.npz").open("wb") as stream:
            np.savez(stream, users=users, items=items)
        return files | {VECTORS: self.store.put(self.folder / "faulty.npz")}

    def _events(self, day: int) -> Any:
        path = self.folder / "events.csv"
        new = self.rows.filter(pl.col("at").is_between(1.6e9 + 86400 * (day - STEP), 1.6e9 + 86400 * day, closed="left"))
        new.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
        return self.store.put(path)

    def _run(self, stage: str, spec: RecommenderSpec, mode: str, inputs: Mapping[str, Files]) -> Outcome:
        self.count += 1
        scratch = self.folder / f"{self.count}-{stage}"
        scratch.mkdir()
        told = StageSpec(
            stage=stage,
            run=f"run-{self.count}",
            attempt=f"run-{self.count}-{stage}-1",
            recommender=spec,
            inputs=dict(inputs),
            mode=mode,
            data_roots=(str(self.folder),),
            artifacts=self.store.url,
        )
        return WORK[stage](Context(told, scratch, self.store, logging.getLogger("stage")))

    def _files(self, outcome: Outcome) -> Files:
        return {name: self.store.put(path) for name, path in outcome.files.items()}


_MANIFEST = {
    "stage": "evaluate",
    "run": "run-1",
    "attempt": "run-1-evaluate-1",
    "started": "2026-01-01T00:00:00Z",
    "ended": "2026-01-01T00:00:00Z",
}


def _compared(spec: RecommenderSpec, mode: str) -> list[Gate]:
    return [gate for gate in run_plan(spec, mode).gates if gate.stage == "evaluate"]


def live(seed: int, mode: str, users: int, retrainings: int) -> tuple[Verdicts, list[float]]:
    rows = rows_of(seed, users, FIRST_DAYS + STEP * retrainings)
    with tempfile.TemporaryDirectory(prefix="retrainings-") as folder:
        line, version = Line(seed, mode, rows, Path(folder)), None
        for number in range(retrainings + 1):
            version = line.retrain(FIRST_DAYS + STEP * number, version)
        return line.verdicts, line.lost


def rows_for(found: Verdicts, lost: Mapping[str, Sequence[float]]) -> list[Row]:
    told = [Row(mode, "worse candidate", "hit rate lost", "%", [100 * one for one in values]) for mode, values in lost.items() if values]
    for mode, candidate, how, margin in dict.fromkeys(key[:4] for key in found):
        counts = {str(verdict): found[mode, candidate, how, margin, str(verdict)] for verdict in Verdict}
        accepted, whole = found[mode, candidate, how, margin, "accepted"], sum(counts.values())
        note = ", ".join(f"{verdict} {count}" for verdict, count in counts.items()) + f" of {whole}"
        case = f"{mode}, {candidate}, not worse than serving by {margin}"
        told.append(Row(case, how, "let through to the canary", "%", [100 * accepted / whole], note=note))
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--days", type=int, default=10, help="retrainings of a seed")
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=2)
    said = parser.parse_args()
    found: Verdicts = Counter()
    lost: dict[str, list[float]] = {"full": [], "warm": []}
    with ProcessPoolExecutor(said.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        lives = {(mode, seed): pool.submit(live, seed, mode, said.users, said.days) for seed in range(1, said.seeds + 1) for mode in lost}
        for (mode, seed), one in lives.items():
            verdicts, fallen = one.result()
            found += verdicts
            lost[mode] += fallen
            sys.stderr.write(f"seed {seed}, {mode}: {said.days} retrainings\n")
            publish("retrainings", rows_for(found, lost), seeds=seed, retrainings=said.days, users=said.users)


if __name__ == "__main__":
    main()
