"""Ten days of retraining: warm, warm with older rows among the new ones, `auto`, and full each day, tested on the next day's likes.

    python -m benchmarks.warm [--data FOLDER] [--families mf neumf mlp two_tower] [--seeds 3] [--worlds spread] [--rules]

FOLDER holds `ml-100k.inter`, which is not part of Eyas; without it rows of its shape are made. Worlds: `time` (the data as it is: half
of its rows first, then ten equal slices), `spread` (the same users, who come back), `shift` (synthetic: from day 4 on every user likes
something else). Each version is made by the platform's own stages, etl and train, a warm one from the version before it. A day's version
is tested on all likes of the next day: hr@10/99, and hr@10 in the full catalogue without the user's known likes.
`new`: of items that the first version did not know. `old`: hr@10/99 of likes that the line has held out before and never trained on.
`--rules` compares, instead, where vectors of new users and items begin (`retrain.warm.new_rows`), by warm runs without older rows.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl

from benchmarks.harness import Fields, Outcome, Row, benchmark, say, scratch, timed
from benchmarks.in_process_stages import InProcessStages, films
from pipelines.evaluation.cases import Cases, drawn_negatives, sample_cases
from pipelines.evaluation.forgetting import ComparedModel, forgetting
from pipelines.evaluation.judge import judge
from pipelines.evaluation.per_user import observe
from pipelines.evaluation.scorers import is_pairwise, model_every, model_scorer
from pipelines.features.graph import load_graph
from pipelines.inputs.eval_pairs import read_meetings
from pipelines.models.families import load_model
from pipelines.stages.replay import HELD
from pipelines.trials.judging import forget
from shared.contracts.evaluation import Evaluate
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files
from shared.domain.warm_or_full import FullRunLimits, Link, TrainingHistory, choose
from shared.stage_process import Outcome as StageOutcome

DAYS, DAY = 10, 86_400.0
TASTES, ITEMS_OF_A_TASTE, SHIFT_DAY = 8, 40, 4
"""Of the world that shifts; the first day on which every user likes something else."""
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
METRICS = {HR: "", FULL: "", f"new {HR}": "", "new shown": "", "old": "", "forgotten": "", "seconds": "s", "full": ""}
BY_DAY = (HR, "old", f"new {HR}", "new shown")


@dataclass(frozen=True)
class World:
    """`base`: the rows before the first day. Frames have userId, movieId, rating and at."""

    name: str
    base: pl.DataFrame
    days: tuple[pl.DataFrame, ...]
    items: pl.DataFrame
    """All items of all days."""


def in_days(name: str, rows: pl.DataFrame, base: float = 0.5) -> World:
    """Rows in their order: a share of them first, then equal slices."""
    first = round(len(rows) * base)
    edges = np.linspace(first, len(rows), DAYS + 1).round().astype(int)
    slices = list(itertools.pairwise(edges))
    times = [number * DAY + np.linspace(0, DAY, stop - start, endpoint=False) for number, (start, stop) in enumerate(slices)]
    at = 1.6e9 + np.concatenate([np.linspace(-30 * DAY, 0, first, endpoint=False), *times])
    dated = rows.select("userId", "movieId", "rating").with_columns(at=at)
    return World(name, dated[:first], tuple(dated[start:stop] for start, stop in slices), dated.select("movieId").unique().sort("movieId"))


def by_time(folder: Path | None) -> World:
    """Nearly every user comes once and stays an hour."""
    return in_days(f"{_name(folder)}, by time", _ratings(folder))


def spread(folder: Path | None, seed: int = 7) -> World:
    """Each user's ratings, in their order, are spread over the time from a day of the user's own to the end."""
    ordered = _ratings(folder)
    users = ordered["userId"].unique(maintain_order=True)
    begins = pl.DataFrame({"userId": users, "begins": np.random.default_rng((seed, 1)).uniform(-0.4, 0.95, len(users)).clip(0)})
    place = pl.int_range(pl.len()).over("userId") / pl.len().over("userId")
    dated = ordered.join(begins, on="userId", maintain_order="left").with_columns(moment=pl.col("begins") + (1 - pl.col("begins")) * place)
    return in_days(f"{_name(folder)}, users who come back", dated.sort("moment", "userId", "movieId"))


def _name(folder: Path | None) -> str:
    return "ml-100k" if folder is not None else "rows of its shape"


def _ratings(folder: Path | None, seed: int = 7) -> pl.DataFrame:
    """MovieLens 100K, or as many synthetic ratings, users and items, with tastes; in the order of time."""
    if folder is not None:
        frame = pl.read_csv(folder / "ml-100k.inter", separator="\t", new_columns=["userId", "movieId", "rating", "at"])
        return frame.with_columns(pl.col("rating", "at").cast(pl.Float64)).sort("at", "userId", "movieId")
    random = np.random.default_rng((seed, 3))
    rows, users, items = 100_000, 943, 1_682
    user = np.sort((users * random.random(rows) ** 1.4).astype(np.int64))
    tastes, kinds = random.standard_normal((users, 6)), random.standard_normal((items, 6))
    item = (items * random.random(rows) ** 2).astype(np.int64)
    stars = 3.5 + 0.5 * np.einsum("nd,nd->n", tastes[user], kinds[item]) + random.standard_normal(rows) * 0.7
    frame = pl.DataFrame({"userId": user, "movieId": item, "rating": stars.round().clip(1, 5), "at": np.arange(rows) * 1.0})
    return frame.unique(["userId", "movieId"], keep="first", maintain_order=True).sort("at", "userId", "movieId")


def shifting(_: Path | None, seed: int = 3, users: int = 600, base: int = 24_000, a_day: int = 3_000) -> World:
    """Each user likes one taste of eight, and from day 4 on another one; every day brings four new items of each taste, and twenty new
    users."""
    random = np.random.default_rng((seed, 2))

    def ratings(day: int, rows: int) -> pl.DataFrame:
        """Half of the items are of the user's own taste; within a taste some items are far more frequent."""
        shift, of_each = 3 if day >= SHIFT_DAY else 0, ITEMS_OF_A_TASTE + 4 * day
        user = random.integers(0, users + 20 * day, rows)
        own = random.random(rows) < 0.5
        taste = np.where(own, (user + shift) % TASTES, random.integers(0, TASTES, rows))
        place = (of_each * random.random(rows) ** 1.5).astype(np.int64)
        liked = random.random(rows) < np.where(taste == (user + shift) % TASTES, 0.9, 0.1)
        return pl.DataFrame({"userId": user, "movieId": place * TASTES + taste, "rating": np.where(liked, 5.0, 2.0)})

    rows = pl.concat([ratings(0, base), *(ratings(day, a_day) for day in range(1, DAYS + 1))])
    return in_days("tastes that shift on day 4", rows, base / len(rows))


WORLDS: dict[str, Callable[[Path | None], World]] = {"time": by_time, "spread": spread, "shift": shifting}


@dataclass(frozen=True)
class Arm:
    """A way of retraining."""

    name: str
    mode: str = "warm"
    replay: float = 0.0
    new_rows: str = "mean"
    recent: int | None = None
    """Days that a full run learns from."""


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
    line: str
    """The runs that its etl was made of."""
    etl: Files = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Test:
    """The next day's likes, the same for every arm."""

    cases: Cases
    negatives: dict[int, Any]
    unknown: np.ndarray[Any, Any]
    """Marks catalogue rows whose items the first day's version did not know."""

    @property
    def new(self) -> np.ndarray[Any, Any]:
        """Marks the cases whose item the first day's version did not know."""
        new: np.ndarray[Any, Any] = self.unknown[self.cases.targets]
        return new


class Stages:
    """Makes and tests versions of one world."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder, self.world = folder, world
        self._stages = InProcessStages(folder, logging.getLogger("warm"))
        self.store = self._stages.store
        world.items.write_parquet(folder / "items.parquet")
        self._etl: dict[str, tuple[Files, StageOutcome]] = {}

    def recommender(self, family: str, seed: int, arm: Arm, day: int) -> RecommenderSpec:
        model = FAMILIES[family]
        days = self.world.days[:day] if arm.recent is None else self.world.days[max(0, day - arm.recent) : day]
        rows = [self.world.base, *days] if arm.recent is None or not days else list(days)
        path = self.folder / f"rows-{day}-{arm.recent}.parquet"
        if not path.exists():
            pl.concat(rows).write_parquet(path)
        own = {} if family == "mf" else {"framework": "torch"}
        warm = {"new_rows": arm.new_rows} | ({} if family == "mf" else {"replay": arm.replay})
        document = films(
            path,
            self.folder / "items.parquet",
            time="at",
            split={"by": "time", "test": 0.1},
            model={**model, **own, "train": model.get("train", {}) | {"seed": seed}},
            retrain={"warm": warm},
        )
        return RecommenderSpec.model_validate(document)

    def version(self, family: str, seed: int, arm: Arm, day: int, parent: Version | None) -> Version:
        """Of a day: from all rows until then, or warm from the parent."""
        mode: Literal["full", "warm"] = "full" if parent is None else "warm"
        spec = self.recommender(family, seed, arm, day)
        inputs: dict[str, Files] = {}
        line = f"{day}-{arm.recent}-{family in {'mf', 'neumf'}}"
        if parent is not None:
            path, line = self.folder / f"events-{day}.csv", f"{parent.line}/{day}"
            if not path.exists():
                self.world.days[day - 1].rename({"userId": "user", "movieId": "item", "rating": "value", "at": "time"}).write_csv(path)
            inputs = {"events": {"events.csv": self.store.put(path)}, "parent": parent.files}
        if line not in self._etl:
            self._etl[line] = self._stages.run("etl", spec, mode, inputs)
        tables, outcome = self._etl[line]
        forget()
        seconds, (files, _) = timed(lambda: self._stages.run("train", spec, mode, inputs | {"etl": tables}))
        return Version(tables | files, Link(mode, dict(outcome.facts["cardinalities"])), line, tables, seconds)

    def fetcher(self, files: Files) -> Any:
        return lambda name: self.store.fetch(files[name], self.folder / "fetched" / files[name].sha256 / name)

    def model(self, version: Version) -> ComparedModel:
        fetch = self.fetcher(version.files)
        model, graph = load_model(fetch), load_graph(fetch)
        meetings = read_meetings(fetch, "users.features.parquet" in version.files, graph)
        keys = pl.read_parquet(fetch("items.parquet"), columns=["movieId"])["movieId"].to_numpy()
        return ComparedModel(model_scorer(meetings, model.score), model_every(meetings, model), keys, is_pairwise(model))

    def test_of(self, day: int) -> Test:
        label = (pl.col("rating") >= 4).cast(pl.Int8).alias("label")

        def labelled(rows: pl.DataFrame) -> pl.DataFrame:
            return rows.select(pl.col("userId").alias("user"), pl.col("movieId").alias("item"), label)

        likes = labelled(self.world.days[day]).unique(["user", "item"], maintain_order=True)
        earlier = labelled(pl.concat([self.world.base, *self.world.days[:day]]))
        history = earlier.group_by("user", "item").agg(pl.col("label").max()).with_columns(before=pl.col("label"))
        new_likes = likes.filter(pl.col("label") == 1).join(history.filter(pl.col("before") == 1), on=["user", "item"], how="anti")
        sample = new_likes.sort("user", "item").sample(min(CASES, len(new_likes)), seed=day)
        cases = sample_cases(sample.lazy(), history.lazy(), self.world.items["movieId"], False, 1)
        unknown = ~self.world.items["movieId"].is_in(self.world.base["movieId"].unique().implode()).to_numpy()
        return Test(cases, {99: drawn_negatives(cases, 99, 1)}, unknown)

    def measure(self, version: Version, test: Test) -> dict[str, float]:
        model = self.model(version)
        ranked = judge(model.scorer, test.cases, test.negatives, every=model.every).ranked
        values = {name: metric.mean for name, metric in observe(ranked, (HR, FULL)).items()}
        shown = ranked.shown[:, :10]
        values["new shown"] = float(test.unknown[shown[shown >= 0]].mean())
        if test.new.any():
            values[f"new {HR}"] = observe(ranked, (HR,), test.new)[HR].mean
        return values

    def forgotten(self, version: Version, parent: Version) -> dict[str, float]:
        """Metrics of the likes that the line has held out, by this version and by its parent."""
        fetch = self.fetcher(version.etl)
        held_out, history = pl.scan_parquet(fetch(HELD)), pl.scan_parquet(fetch("history.parquet"))
        return dict(forgetting(held_out, history, self.model(version), self.model(parent), 1, Evaluate()).metrics)


def run_days(stages: Stages, family: str, seed: int, arm: Arm, tests: Sequence[Test], version: Version) -> Iterator[dict[str, float]]:
    links = [version.link]
    for day in range(1, len(tests)):
        mode, reason = arm.mode, ""
        if mode == "auto":
            choice = choose(TrainingHistory(tuple(links)), FullRunLimits())
            mode, reason = choice.mode, choice.reason
        parent = version if mode == "warm" else None
        version = stages.version(family, seed, arm, day, parent)
        values = stages.measure(version, tests[day]) | {"seconds": version.seconds, "full": float(mode == "full")}
        if parent is None:
            links = [version.link]
        else:
            metrics = stages.forgotten(version, parent)
            lost = metrics.get("candidate.forgotten")
            values |= {"old": metrics.get(f"candidate.old.{HR}", np.nan), "forgotten": np.nan if lost is None else lost}
            links = [Link("warm", version.link.codes, lost), *links]
        figures = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        say(f"{family} seed {seed} {arm.name} day {day} ({reason or mode}): {figures}")
        yield values


@benchmark("warm")
def warm(
    data: Path | None = None,
    families: Annotated[list[str], tuple(FAMILIES)] = list(FAMILIES),  # noqa: B006  read only
    worlds: Annotated[list[str], tuple(WORLDS)] = list(WORLDS),  # noqa: B006  read only
    seeds: int = 3,
    days: Annotated[int, "tested days; the tenth is the ninth version's next day"] = 9,
    rules: Annotated[bool, "compare where new vectors begin"] = False,
    name: Annotated[str, "of the file in var/bench"] = "warm",
) -> Iterator[Outcome]:
    yield Fields(bench=name)
    for kind in worlds:
        world = WORLDS[kind](data)
        for family in families:
            arms = BY_RULE if rules else ARMS + ((RECENT,) if kind == "shift" else ())
            if family == "mf":  # it reads every known like in any case
                arms = tuple(arm for arm in arms if arm.mode != "warm" or not arm.replay)
            lives: dict[str, list[list[dict[str, float]]]] = {arm.name: [] for arm in arms}
            with scratch() as folder:
                stages = Stages(folder, world)
                tests = [stages.test_of(day) for day in range(days + 1)]
                for seed in range(1, seeds + 1):
                    first = stages.version(family, seed, Arm("first", "full"), 0, None)
                    for arm in arms:
                        lives[arm.name].append(list(run_days(stages, family, seed, arm, tests, first)))
            yield from figures(f"{family}, {world.name}", lives)


def figures(case: str, lives: dict[str, list[list[dict[str, float]]]]) -> Iterator[Row]:
    """The mean over the days, by seed; and each day's, over the seeds."""
    for arm, runs in lives.items():
        for metric, unit in METRICS.items():
            values = [float(np.mean(by_day)) for run in runs if (by_day := _values(run, metric))]
            if values:
                yield Row(case, arm, metric, unit, values)
    for arm, runs in lives.items():
        for metric, (day, by_seed) in itertools.product(BY_DAY, enumerate(zip(*runs, strict=True), 1)):
            if values := _values(by_seed, metric):
                yield Row(f"{case}, day {day}", arm, metric, "", values)


def _values(measured: Sequence[dict[str, float]], metric: str) -> list[float]:
    """Without missing ones."""
    return [values[metric] for values in measured if not np.isnan(values.get(metric, np.nan))]


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    warm()
