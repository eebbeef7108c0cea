"""Whether gates let equal retrainings through and notice worse ones: ten retrainings on overlapping data, full, warm, and full ones that
follow warm ones, by the platform's own stages.

    python -m benchmarks.retrainings [--seeds 20] [--days 10] [--users 2000] [--arriving 0.3] [--modes MODE ...] [--only-before]

Users and items have fixed vectors, and users like an item more often the better both fit: nothing changes with time, so a retraining by the
same spec is as good as the version before. With `--arriving`, that share of the users has its first row later than the others, evenly over
all days. After a first version, each retraining has two more days of rows; each becomes the version that
serves. *Worse* is the same candidate with a planted fault: the vectors of some users are noise, so that its hit rate is about 5 % lower.

A candidate is compared with the serving version in three ways:

- before: the model of the last full run of its line, before the refit, on the whole holdout: what the platform does
- newer: the version as it serves, on the rows of the holdout that are newer than all it has learned
- as it serves: on the whole holdout, which the version has learned (wrong)

A warm retraining holds out newer rows only, so all three are the same. Of "full after warm", every second retraining is warm, and full ones
are judged. Each gate is judged on the numbers that evaluate publishes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from benchmarks.in_process_stages import InProcessStages
from benchmarks.report import Row, publish
from pipelines.features.columns import FIRST
from pipelines.models.mf import VECTORS
from pipelines.stages.rival import BEFORE_REFIT
from shared.contracts.plans import run_plan
from shared.contracts.refit import REFIT, Refit
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest
from shared.domain.gate import Gate, Verdict, judge

MARGINS = ("0%", "1%", "2%", "5%")
ITEMS, WIDTH, A_DAY, FIRST_DAYS, STEP = 400, 8, 4_000, 15, 2
FAULTY = 0.16
"""Share of the users whose vectors are noise in a worse candidate."""
AFTER_WARM = "full after warm"
MODES = ("full", "warm", AFTER_WARM)
BEFORE, NEWER, SERVES = "before", "newer", "as it serves"
WAYS = (BEFORE, NEWER, SERVES)
Verdicts = Counter[tuple[str, str, str, str, str]]
"""How often: mode, candidate, how it is compared, margin, verdict."""


def rows_of(seed: int, users: int, days: int, arriving: float) -> pl.DataFrame:
    """Users meet items by chance, the popular ones more often."""
    random = np.random.default_rng((seed, 3))
    of_users, of_items = (random.normal(size=(count, WIDTH)) for count in (users, ITEMS))
    count = A_DAY * days
    at = np.sort(random.random(count))
    there = users - np.ceil(arriving * users * (1 - at)).astype(np.int64)
    user = random.integers(np.maximum(there, 1))
    item = np.minimum((ITEMS * random.random(count) ** 1.5).astype(np.int64), ITEMS - 1)
    fit = np.einsum("rw,rw->r", of_users[user], of_items[item]) / np.sqrt(WIDTH)
    liked = random.random(count) < 1 / (1 + np.exp(-2.5 * (fit - 0.5)))
    times = 1.6e9 + 86400 * days * at
    return pl.DataFrame({"userId": user + 1, "movieId": item + 1, "rating": np.where(liked, 5.0, 1.0), "at": times})


@dataclass
class Version:
    """What each stage has published."""

    stages: dict[str, Files]
    full: Version | None = None
    """The last full version of a warm one's line."""

    @property
    def parent(self) -> Files:
        return self.stages["etl"] | self.stages["train"] | self.stages["refit"]

    @property
    def before_refit(self) -> Files:
        full = self.full or self
        return full.stages["etl"] | full.stages["train"] | {REFIT: self.stages["refit"][REFIT]}


@dataclass
class Line:
    """Retrainings of one seed, one after the other."""

    seed: int
    mode: str
    rows: pl.DataFrame
    folder: Path
    ways: Sequence[str] = WAYS
    """How full candidates are compared with the serving version."""
    verdicts: Verdicts = field(default_factory=Counter)
    lost: list[float] = field(default_factory=list)
    """How much worse the faulty candidates are, on all cases."""

    def __post_init__(self) -> None:
        self.stages = InProcessStages(self.folder)
        self.store = self.stages.store
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

    def retrain(self, number: int, serving: Version | None) -> Version:
        """Trains a candidate, and judges it and a worse one if a version serves."""
        day, mode = FIRST_DAYS + STEP * number, self.mode
        if mode == AFTER_WARM:
            mode = "warm" if number % 2 else "full"
        spec, mode = self.spec(day), mode if serving is not None else "full"
        inputs: dict[str, Files] = {}
        if serving is not None and mode == "warm":
            inputs = {"parent": serving.parent, "events": {"events.csv": self._events(day)}}
        made: dict[str, Files] = {}
        stage: Literal["etl", "train"]
        for stage in ("etl", "train"):
            made[stage], _ = self.stages.run(stage, spec, mode, inputs | made)
        if serving is not None and self.mode.startswith(mode):
            self._judge(spec, mode, inputs | made, serving)
        refitted, _ = self.stages.run("refit", spec, mode, inputs | made)
        exported, _ = self.stages.run("export", spec, mode, {"etl": made["etl"] | refitted, "train": refitted})
        full = (serving.full or serving) if serving is not None and mode == "warm" else None
        return Version(made | {"refit": refitted, "export": exported}, full)

    def _judge(self, spec: RecommenderSpec, mode: str, inputs: dict[str, Files], serving: Version) -> None:
        serves: dict[str, Files] = {"serving": serving.stages["export"]}
        compared = {SERVES: serves}
        if mode == "full":
            newer = inputs["etl"] | {"holdout.parquet": self._newer(inputs["etl"], serving)}
            ways = {BEFORE: serves | {BEFORE_REFIT: serving.before_refit}, NEWER: serves | {"etl": newer}, SERVES: serves}
            compared = {way: ways[way] for way in self.ways}
        values = {}
        for candidate, trained in (("equal", inputs["train"]), ("worse", self._faulty(inputs["train"]))):
            for how, more in compared.items():
                _, outcome = self.stages.run("evaluate", spec, mode, {**inputs, "train": trained, **more})
                if how != NEWER:
                    values[candidate] = outcome.metrics["candidate.hr@10"]
                manifest = Manifest.model_validate(_MANIFEST | {"metrics": outcome.metrics, "facts": outcome.facts})
                for margin, gate in zip(MARGINS, _compared(spec, mode), strict=True):
                    result = judge(gate, manifest.metrics, True, manifest.silence())
                    self.verdicts[self.mode, candidate, how, margin, str(result.verdict)] += 1
                    self.verdicts[self.mode, candidate, how, margin, "accepted"] += result.verdict is Verdict.PASS or result.accepted != ""
        self.lost.append(1 - values["worse"] / values["equal"])

    def _newer(self, files: Files, serving: Version) -> Any:
        about = Refit.model_validate_json(self.store.read(serving.stages["refit"][REFIT]))
        path = self.folder / "newer.parquet"
        rows = pl.read_parquet(self.store.fetch(files["holdout.parquet"], self.folder / "holdout.parquet"))
        rows.filter(pl.col("time") > about.newest).write_parquet(path)
        return self.store.put(path)

    def _faulty(self, files: Files) -> Files:
        with np.load(self.store.fetch(files[VECTORS], self.folder / "vectors.npz"), allow_pickle=False) as stored:
            users, items = stored["users"], stored["items"]
        random = np.random.default_rng((self.seed, self.stages.count))
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


_MANIFEST = {
    "stage": "evaluate",
    "run": "run-1",
    "attempt": "run-1-evaluate-1",
    "started": "2026-01-01T00:00:00Z",
    "ended": "2026-01-01T00:00:00Z",
}


def _compared(spec: RecommenderSpec, mode: str) -> list[Gate]:
    return [gate for gate in run_plan(spec, mode).gates if gate.stage == "evaluate"]


def live(seed: int, mode: str, users: int, arriving: float, retrainings: int, ways: Sequence[str] = WAYS) -> tuple[Verdicts, list[float]]:
    rows = rows_of(seed, users, FIRST_DAYS + STEP * retrainings, arriving)
    with tempfile.TemporaryDirectory(prefix="retrainings-") as folder:
        line, version = Line(seed, mode, rows, Path(folder), ways), None
        for number in range(retrainings + 1):
            version = line.retrain(number, version)
        return line.verdicts, line.lost


def report_rows(verdicts: Verdicts, lost: Mapping[str, Sequence[float]]) -> list[Row]:
    rows = [Row(mode, "worse candidate", "hit rate lost", "%", [100 * loss for loss in losses]) for mode, losses in lost.items() if losses]
    for mode, candidate, how, margin in dict.fromkeys(key[:4] for key in verdicts):
        counts = {str(verdict): verdicts[mode, candidate, how, margin, str(verdict)] for verdict in Verdict}
        accepted, whole = verdicts[mode, candidate, how, margin, "accepted"], sum(counts.values())
        note = ", ".join(f"{verdict} {count}" for verdict, count in counts.items()) + f" of {whole}"
        case = f"{mode}, {candidate}, not worse than serving by {margin}"
        rows.append(Row(case, how, "let through to the canary", "%", [100 * accepted / whole], note=note))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--days", type=int, default=10, help="retrainings of a seed")
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--arriving", type=float, default=0.0, help="share of the users who arrive later")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--only-before", action="store_true", help="compare full candidates as the platform does, and in no other way")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    verdicts: Verdicts = Counter()
    ways = (BEFORE,) if options.only_before else WAYS
    lost: dict[str, list[float]] = {mode: [] for mode in options.modes}
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        keys = [(mode, seed) for seed in range(1, options.seeds + 1) for mode in lost]
        lines = {(mode, seed): pool.submit(live, seed, mode, options.users, options.arriving, options.days, ways) for mode, seed in keys}
        for (mode, seed), line in lines.items():
            of_line, lost_of_line = line.result()
            verdicts += of_line
            lost[mode] += lost_of_line
            sys.stderr.write(f"seed {seed}, {mode}: {options.days} retrainings\n")
            publish(
                "retrainings",
                report_rows(verdicts, lost),
                seeds=seed,
                retrainings=options.days,
                users=options.users,
                arriving=options.arriving,
            )


if __name__ == "__main__":
    main()
