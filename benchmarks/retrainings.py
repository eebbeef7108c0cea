"""Whether gates let equal retrainings through and notice worse ones: ten retrainings on overlapping data, full, warm, and full ones that
follow warm ones, by the platform's own stages.

    python -m benchmarks.retrainings [--seeds 20] [--days 10] [--users 2000] [--arriving 0.3] [--modes MODE ...]

Users and items have fixed vectors, and users like an item more often the better both fit: nothing changes with time, so a retraining by the
same spec is as good as the version before. With `--arriving`, that share of the users has its first row later than the others, evenly over
all days. After a first version, each retraining has two more days of rows; each becomes the version that
serves. *Worse* is the same candidate with a planted fault: the vectors of some users are noise, so that its hit rate is about 5 % lower.

A candidate is compared with the serving version as the platform does it. Full: with the model of the last full run of its line, before the
refit, on the whole holdout. Warm: with the version as it serves, because the holdout has newer rows only. Of "full after warm", every
second retraining is warm, and full ones are judged. Each gate is judged on the numbers that evaluate publishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

from benchmarks.harness import Fields, Outcome, Row, benchmark, say, scratch, write
from benchmarks.in_process_stages import InProcessStages
from benchmarks.trials import workers as worker_pool
from pipelines.features.columns import FIRST
from pipelines.models.mf import VECTORS
from pipelines.stages.rival import BEFORE_REFIT
from shared.contracts.plans import run_plan
from shared.contracts.refit import REFIT
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest
from shared.domain.gate import Verdict, judge

MARGINS = ("0%", "1%", "2%", "5%")
ITEMS, WIDTH, A_DAY, FIRST_DAYS, STEP = 400, 8, 4_000, 15, 2
FAULTY = 0.16
"""Share of the users whose vectors are noise in a worse candidate."""
AFTER_WARM = "full after warm"
MODES = ("full", "warm", AFTER_WARM)
METHODS = {"full": "before", "warm": "as it serves", AFTER_WARM: "before"}
"""How candidates of a mode are compared with the serving version."""
ACCEPTED = "accepted"
Verdicts = Counter[tuple[str, str, str, str]]
"""How often: mode, candidate, margin, verdict."""


def rows_of(seed: int, users: int, days: int, arriving: float) -> pl.DataFrame:
    """Users meet items by chance, the popular ones more often."""
    random = np.random.default_rng((seed, 3))
    of_users, of_items = (random.normal(size=(count, WIDTH)) for count in (users, ITEMS))
    count = A_DAY * days
    at = np.sort(random.random(count))
    arrived = users - np.ceil(arriving * users * (1 - at)).astype(np.int64)
    user = random.integers(np.maximum(arrived, 1))
    item = np.minimum((ITEMS * random.random(count) ** 1.5).astype(np.int64), ITEMS - 1)
    fit = np.einsum("rw,rw->r", of_users[user], of_items[item]) / np.sqrt(WIDTH)
    liked = random.random(count) < 1 / (1 + np.exp(-2.5 * (fit - 0.5)))
    rating = np.where(liked, 5.0, 1.0)
    return pl.DataFrame({"userId": user + 1, "movieId": item + 1, "rating": rating, "at": _time(days * at)})


def _time(day: Any) -> Any:
    return 1.6e9 + 86400 * day


@dataclass
class Version:
    """Published files by stage."""

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
    verdicts: Verdicts = field(default_factory=Counter)
    lost: list[float] = field(default_factory=list)
    """How much worse the faulty candidates are, on all cases."""

    def __post_init__(self) -> None:
        self.stages = InProcessStages(self.folder)
        self.store = self.stages.store
        pl.DataFrame({"movieId": range(1, ITEMS + 1)}).write_parquet(self.folder / "items.parquet")

    def spec(self, day: int) -> RecommenderSpec:
        path = self.folder / f"rows-{day}.parquet"
        self.rows.filter(pl.col("at") < _time(day)).write_parquet(path)
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
        day = FIRST_DAYS + STEP * number
        spec = self.spec(day)
        mode = "full" if serving is None else ("full", "warm")[number % 2] if self.mode == AFTER_WARM else self.mode
        inputs: dict[str, Files] = {}
        if serving is not None and mode == "warm":
            inputs = {"parent": serving.parent, "events": {"events.csv": self._events(day)}}
        made: dict[str, Files] = {}
        stage: Literal["etl", "train"]
        for stage in ("etl", "train"):
            made[stage], _ = self.stages.run(stage, spec, mode, inputs | made)
        if serving is not None and self.mode.startswith(mode):
            rival = {"serving": serving.stages["export"]} | ({BEFORE_REFIT: serving.before_refit} if mode == "full" else {})
            self._judge(spec, mode, inputs | made | rival)
        refitted, _ = self.stages.run("refit", spec, mode, inputs | made)
        exported, _ = self.stages.run("export", spec, mode, {"etl": made["etl"] | refitted, "train": refitted})
        full = (serving.full or serving) if serving is not None and mode == "warm" else None
        return Version(made | {"refit": refitted, "export": exported}, full)

    def _judge(self, spec: RecommenderSpec, mode: str, inputs: dict[str, Files]) -> None:
        rates = {}
        gates = [gate for gate in run_plan(spec, mode).gates if gate.stage == "evaluate"]
        for candidate, trained in (("equal", inputs["train"]), ("worse", self._faulty(inputs["train"]))):
            _, outcome = self.stages.run("evaluate", spec, mode, inputs | {"train": trained})
            rates[candidate] = outcome.metrics["candidate.hr@10"]
            manifest = Manifest.model_validate(_MANIFEST | {"metrics": outcome.metrics, "facts": outcome.facts})
            for margin, gate in zip(MARGINS, gates, strict=True):
                result = judge(gate, manifest.metrics, True, manifest.silence())
                self.verdicts[self.mode, candidate, margin, result.verdict] += 1
                self.verdicts[self.mode, candidate, margin, ACCEPTED] += result.verdict is Verdict.PASS or result.accepted != ""
        self.lost.append(1 - rates["worse"] / rates["equal"])

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
        new = self.rows.filter(pl.col("at").is_between(_time(day - STEP), _time(day), closed="left"))
        new.rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
        return self.store.put(path)


_MANIFEST = {
    "stage": "evaluate",
    "run": "run-1",
    "attempt": "run-1-evaluate-1",
    "started": "2026-01-01T00:00:00Z",
    "ended": "2026-01-01T00:00:00Z",
}


def live(mode: str, seed: int, users: int, arriving: float, retrainings: int) -> tuple[Verdicts, list[float]]:
    rows = rows_of(seed, users, FIRST_DAYS + STEP * retrainings, arriving)
    with scratch() as folder:
        line, version = Line(seed, mode, rows, folder), None
        for number in range(retrainings + 1):
            version = line.retrain(number, version)
        return line.verdicts, line.lost


def report_rows(verdicts: Verdicts, lost: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    for mode, losses in lost.items():
        if losses:
            yield Row(mode, "worse candidate", "hit rate lost", "%", [100 * loss for loss in losses])
    for mode, candidate, margin in dict.fromkeys(key[:3] for key in verdicts):
        counts = {str(verdict): verdicts[mode, candidate, margin, verdict] for verdict in Verdict}
        total = sum(counts.values())
        note = ", ".join(f"{verdict} {count}" for verdict, count in counts.items()) + f" of {total}"
        case = f"{mode}, {candidate}, not worse than serving by {margin}"
        through = 100 * verdicts[mode, candidate, margin, ACCEPTED] / total
        yield Row(case, METHODS[mode], "let through to the canary", "%", [through], note=note)


@benchmark("retrainings")
def retrainings(
    seeds: int = 20,
    days: Annotated[int, "retrainings of a seed"] = 10,
    users: int = 2_000,
    arriving: Annotated[float, "share of the users who arrive later"] = 0.0,
    modes: Annotated[list[str], MODES] = list(MODES),  # noqa: B006  never changed
    workers: int = 2,
) -> Iterator[Outcome]:
    fields = Fields(retrainings=days, users=users, arriving=arriving)
    yield Fields(fields, seeds=seeds)
    verdicts: Verdicts = Counter()
    lost: dict[str, list[float]] = {mode: [] for mode in modes}
    with worker_pool(workers) as pool:
        lines = {(seed, mode): pool.submit(live, mode, seed, users, arriving, days) for seed in range(1, seeds + 1) for mode in modes}
        for (seed, mode), line in lines.items():
            of_line, lost_of_line = line.result()
            verdicts += of_line
            lost[mode] += lost_of_line
            say(f"seed {seed}, {mode}: {days} retrainings")
            write(list(report_rows(verdicts, lost)), "retrainings", seeds=seed, **fields)
    yield from report_rows(verdicts, lost)


if __name__ == "__main__":
    retrainings()
