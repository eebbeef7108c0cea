"""Ten days of retraining: warm, warm with older rows among the new ones, `auto`, and anew each day, judged on what is liked the day
after.

    python -m benchmarks.warm [--data FOLDER] [--families mf neumf mlp two_tower] [--seeds 3] [--worlds spread] [--rules]

FOLDER holds `ml-100k.inter`, which isn't part of Eyas; without it rows of its shape are made. Worlds: `time` (the data as it is: half
of its rows first, then ten equal slices), `spread` (the same users, who come back), `shift` (made: every user likes something else from
day 4 on). Each version is made by the platform's own stages, etl and train, a warm one from the version before it. A day's version is
asked for what is liked on the next one, by whomever: hr@10/99, and hr@10 in the full catalogue without what the user is known to like.
`new`: of items that the first version didn't know. `old`: hr@10/99 of likes that the line has held out before and never trained on.
`--rules` compares, instead, where vectors of new users and items begin (`retrain.warm.new_rows`), by warm runs without older rows.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.in_process_stages import InProcessStages
from benchmarks.report import Row, publish
from benchmarks.warm_worlds import World, movielens, shifting
from pipelines.evaluation.cases import Cases, drawn_negatives, sample_cases
from pipelines.evaluation.forgetting import ComparedModel, forgetting
from pipelines.evaluation.judge import judge
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.scorers import is_pairwise, model_every, model_scorer
from pipelines.features.graph import load_graph
from pipelines.inputs.eval_pairs import read_meetings
from pipelines.models.families import load_model
from pipelines.models.family import Trained
from pipelines.stages.replay import HELD
from pipelines.trials.judging import forget
from shared.contracts.evaluation import Evaluate
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.domain.warm_or_full import FullRunLimits, Link, TrainingHistory, choose
from shared.stage_process import Outcome

FAMILIES: dict[str, dict[str, Any]] = {
    "mf": {"family": "mf", "params": {"loss": "softmax", "width": 32}},
    "neumf": {"family": "neumf", "params": {"width": 16, "layers": [16, 8]}},
    "mlp": {"family": "mlp", "params": {"width": 16, "layers": [32, 16]}, "train": {"epochs": 5, "batch_size": 1024}},
    "two_tower": {
        "family": "two_tower",
        "params": {"width": 32, "layers": [32], "embedding": 16},
        "train": {"epochs": 5, "batch_size": 512},
    },
}
CASES = 800
HR, FULL = "hr@10/99", "hr@10"


@dataclass(frozen=True)
class Arm:
    """How one contender is retrained."""

    name: str
    mode: str = "warm"
    replay: float = 0.0
    new_rows: str = "mean"
    recent: int | None = None
    """Days that a full one learns from."""


ARMS = (
    Arm("eyas full", "full"),
    Arm("eyas warm"),
    Arm("eyas warm, 20% older", replay=0.2),
    Arm("eyas warm, 50% older", replay=0.5),
    Arm("eyas auto, 20% older", "auto", replay=0.2),
)
RECENT = Arm("eyas full, newest 3 days", "full", recent=3)
BY_RULE = tuple(Arm(f"eyas warm, {rule}", new_rows=rule) for rule in ("mean", "unknown", "random"))


@dataclass
class Version:
    files: Files
    link: Link
    etl: Files = field(default_factory=dict)
    seconds: float = 0.0


class Stages:
    """Makes and reads versions of one world."""

    def __init__(self, folder: Path, world: World, log: logging.Logger) -> None:
        self.folder, self.world, self.log = folder, world, log
        self._stages = InProcessStages(folder, log)
        self.store = self._stages.store
        world.items.write_parquet(folder / "items.parquet")
        self._done: dict[str, tuple[Files, Outcome]] = {}

    def recommender(self, family: str, seed: int, arm: Arm, day: int) -> RecommenderSpec:
        model = FAMILIES[family]
        taught = dict(model.get("train", {})) | {"seed": seed}
        rows = [self.world.base, *self.world.days[:day]] if arm.recent is None else list(self.world.days[max(0, day - arm.recent) : day])
        path = self.folder / f"rows-{day}-{arm.recent}.parquet"
        if not path.exists():
            pl.concat(rows or [self.world.base]).write_parquet(path)
        framework = {} if family == "mf" else {"framework": "torch"}
        warm = {"new_rows": arm.new_rows} | ({} if family == "mf" else {"replay": arm.replay})
        spec = {
            "name": "films",
            "data": {"interactions": {"uri": str(path)}, "items": {"uri": str(self.folder / "items.parquet"), "key": "movieId"}},
            "schema": {"user": "userId", "item": "movieId", "time": "at", "label": {"column": "rating", "positive": ">= 4"}},
            "split": {"by": "time", "test": 0.1},
            "model": {**model, **framework, "train": taught},
            "retrain": {"warm": warm},
            "gates": [{"parity": 1e-4}],
        }
        return RecommenderSpec.model_validate(spec)

    def version(self, family: str, seed: int, arm: Arm, day: int, parent: Version | None, line: str) -> tuple[Version, str]:
        """Of a day: from all that was until then, or warm from the parent. `line` tells what the parent's etl was made of."""
        mode = "full" if parent is None else "warm"
        spec = self.recommender(family, seed, arm, day)
        inputs: dict[str, Files] = {}
        if parent is not None:
            path = self.folder / f"events-{day}.csv"
            names = {"userId": "user", "movieId": "item", "rating": "value", "at": "time"}
            if not path.exists():
                self.world.days[day - 1].rename(names).write_csv(path)
            inputs = {"events": {"events.csv": self.store.put(path)}, "parent": parent.files}
        line = f"{line}/{day}" if parent is not None else f"{day}-{arm.recent}-{family in {'mf', 'neumf'}}"
        if line not in self._done:
            self._done[line] = self._stages.run("etl", spec, mode, inputs)
        made, told = self._done[line]
        forget()
        began = time.monotonic()
        files, _ = self._stages.run("train", spec, mode, inputs | {"etl": made})
        seconds = time.monotonic() - began
        link = Link("full" if mode == "full" else "warm", dict(told.facts["cardinalities"]))
        return Version(made | files, link, made, seconds), line

    def fetcher(self, files: Files) -> Any:
        return lambda name: self.store.fetch(files[name], self.folder / "fetched" / files[name].sha256 / name)

    def side(self, version: Version) -> tuple[ComparedModel, Trained]:
        fetch = self.fetcher(version.files)
        model, graph = load_model(fetch), load_graph(fetch)
        met = read_meetings(fetch, "users.features.parquet" in version.files, graph)
        keys = pl.read_parquet(fetch("items.parquet"), columns=["movieId"])["movieId"].to_numpy()
        return ComparedModel(model_scorer(met, model.score), model_every(met, model), keys, is_pairwise(model)), model


@dataclass(frozen=True)
class Asked:
    """What the next day's likes are, for everybody the same."""

    cases: Cases
    negatives: dict[int, Any]
    new: np.ndarray[Any, Any]
    """Whether a case's item was met in no row before the first day's version."""
    unknown: np.ndarray[Any, Any]
    """Rows of the catalogue that weren't."""


def asked(world: World, day: int) -> Asked:
    before = pl.concat([world.base, *world.days[:day]])
    known = world.base["movieId"].unique()
    label = (pl.col("rating") >= 4).cast(pl.Int8).alias("label")
    names = {"userId": "user", "movieId": "item"}
    likes = world.days[day].select("userId", "movieId", label).rename(names).unique(["user", "item"], maintain_order=True)
    history = before.select("userId", "movieId", label).rename(names).group_by("user", "item").agg(pl.col("label").max())
    history = history.with_columns(before=pl.col("label"))
    whole = likes.filter(pl.col("label") == 1).join(history.filter(pl.col("before") == 1), on=["user", "item"], how="anti")
    some = whole.sort("user", "item").sample(min(CASES, len(whole)), seed=day)
    cases = sample_cases(some.lazy(), history.lazy(), world.items["movieId"], False, 1)
    unknown = ~world.items["movieId"].is_in(known.implode()).to_numpy()
    return Asked(cases, {99: drawn_negatives(cases, 99, 1)}, unknown[cases.targets], unknown)


def judged(stages: Stages, version: Version, what: Asked) -> dict[str, float]:
    side, _ = stages.side(version)
    found = judge(side.scorer, what.cases, what.negatives, every=side.every)
    values = {name: one.mean for name, one in observe(found.ranked, (HR, FULL)).items()}
    shown = found.ranked.shown[:, :10]
    values["new shown"] = float(what.unknown[shown[shown >= 0]].mean())
    if what.new.any():
        values[f"new {HR}"] = observe(found.ranked, (HR,), what.new)[HR].mean
        values["new cases"] = float(what.new.sum())
    return values


def old(stages: Stages, held: Files, history: Files, version: Version, than: Version) -> dict[str, float]:
    """Of what the line has held out, by this version and by its parent."""
    fetch = stages.fetcher(held)
    of = pl.scan_parquet(stages.fetcher(history)("history.parquet"))
    found = forgetting(pl.scan_parquet(fetch(HELD)), of, stages.side(version)[0], stages.side(than)[0], 1, Evaluate())
    return dict(found.metrics)


def life(
    stages: Stages, family: str, seed: int, arm: Arm, questions: list[Asked], first: tuple[Version, str]
) -> Iterator[dict[str, float]]:
    """Day by day."""
    version, line = first
    links = [version.link]
    for day in range(1, len(questions)):
        mode, reason = arm.mode, ""
        if mode == "auto":
            choice = choose(TrainingHistory(tuple(links)), FullRunLimits())
            mode, reason = choice.mode, choice.reason
        parent = version if mode == "warm" else None
        made, line = stages.version(family, seed, arm, day, parent, line)
        values = judged(stages, made, questions[day]) | {"seconds": made.seconds, "full": float(mode == "full")}
        if parent is not None:
            found = old(stages, made.etl, made.etl, made, parent)
            lost = found.get("candidate.forgotten")
            values |= {"old": found.get(f"candidate.old.{HR}", np.nan), "forgotten": np.nan if lost is None else lost}
            links = [Link("warm", made.link.codes, lost), *links]
        else:
            links = [made.link]
        version = made
        stages.log.warning("%s seed %d %s day %d (%s): %s", family, seed, arm.name, day, reason or mode, _said(values))
        yield values


def _said(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in values.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--worlds", nargs="+", default=["time", "spread", "shift"], choices=["time", "spread", "shift"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--days", type=int, default=9, help="how many are judged; the tenth is the ninth version's next day")
    parser.add_argument("--rules", action="store_true", help="compare where new vectors begin")
    parser.add_argument("--name", default="warm", help="of the file in var/bench")
    said = parser.parse_args()
    log = logging.getLogger("warm")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    by_time, spread = movielens(said.data)
    worlds = {"time": by_time, "spread": spread, "shift": shifting()}
    rows: list[Row] = []
    for name in said.worlds:
        world = worlds[name]
        arms = BY_RULE if said.rules else ARMS + ((RECENT,) if name == "shift" else ())
        questions = [asked(world, day) for day in range(said.days + 1)]
        for family in said.families:
            found: dict[str, list[list[dict[str, float]]]] = {arm.name: [] for arm in arms}
            with tempfile.TemporaryDirectory(prefix="warm-") as scratch:
                stages = Stages(Path(scratch), world, log)
                for seed in range(1, said.seeds + 1):
                    first = stages.version(family, seed, Arm("first", "full"), 0, None, "")
                    for arm in arms:
                        if family == "mf" and arm.replay and arm.mode == "warm":
                            continue  # it reads every like known so far in any case
                        found[arm.name].append(list(life(stages, family, seed, arm, questions, first)))
            rows += list(figures(f"{family}, {world.name}", found))
            publish(said.name, rows)
    return 0


METRICS = {HR: "", FULL: "", f"new {HR}": "", "new shown": "", "old": "", "forgotten": "", "seconds": "s", "full": ""}


def figures(case: str, found: dict[str, list[list[dict[str, float]]]]) -> Iterator[Row]:
    """The mean over the days, by seed; and each day's, over the seeds."""
    for arm, lives in found.items():
        for metric, unit in METRICS.items():
            values = [mean for one in lives if not np.isnan(mean := _mean([day.get(metric, np.nan) for day in one]))]
            if values:
                yield Row(case, arm, metric, unit, values)
    for arm, lives in found.items():
        for metric in (HR, "old", f"new {HR}", "new shown"):
            for day in range(len(lives[0]) if lives else 0):
                values = [one[day][metric] for one in lives if not np.isnan(one[day].get(metric, np.nan))]
                if values:
                    yield Row(f"{case}, day {day + 1}", arm, metric, "", values)


def _mean(values: list[float]) -> float:
    there = [one for one in values if not np.isnan(one)]
    return float(np.mean(there)) if there else float("nan")


if __name__ == "__main__":
    sys.exit(main())
