"""Compares click models on the Frappe data: the platform's families with their presets, plain models in torch, XGBoost and LightGBM.

    python -m benchmarks.clicks --data FOLDER [--seeds 5] [--contenders "eyas: dlrm" ...]

FOLDER holds train.parquet with `label` and ten columns of codes (`frappe`). An eighth of the rows, drawn once, is the test; of the others a
seventh, drawn by the seed, chooses the epoch or the number of trees. Each contender has four trials with the first seed, of which the best
by the AUC of these rows is trained with the other seeds. Families get their rows from the etl stage and train as in a run; peers get the
same encoded columns.

Results are stored by contender and seed in `--store`; an interrupted run continues. Calibration is the mean prediction of
the test rows, divided by their share of clicks.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import FOLDER, Outcome, benchmark, say, scratch
from benchmarks.in_process_stages import InProcessStages
from benchmarks.tables import rows_of_runs
from pipelines.evaluation.calibration import calibrate
from pipelines.evaluation.metrics import auc
from pipelines.features.graph import Graph, load_graph
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes, read_table
from pipelines.models.families import family_of
from pipelines.models.family import Task
from pipelines.models.popularity_baseline import fit_popularity
from pipelines.training.validation import hold_out
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec

TEST, VALIDATION = 1 / 8, 1 / 7
CUT = 2
"""Seed of the test rows."""
TREES = 1_000
"""At most, of plain boosted trees."""
Settings = Mapping[str, Any]
NEURAL: tuple[Settings, ...] = ({}, {"regularisation": 0.03}, {"dropout": 0.2}, {"layers": (400, 400, 400)})
"""Trials of our neural families, beside their presets."""
PLAIN: tuple[Settings, ...] = ({}, {"penalty": 0.02}, {"dropout": 0.2}, {"layers": (256, 256, 256)})
"""Trials of the models in torch."""
GROWN: tuple[Settings, ...] = ({}, {"depth": 14}, {"depth": 10, "columns": 1.0}, {"learning_rate": 0.1, "least": 1.0})
XGBOOST: tuple[Settings, ...] = (
    {},
    {"max_depth": 10},
    {"max_depth": 10, "eta": 0.05, "min_child_weight": 0.1},
    {"max_depth": 14, "eta": 0.05, "min_child_weight": 0.1, "colsample_bytree": 0.5, "subsample": 0.8},
)
LIGHTGBM: tuple[Settings, ...] = (
    {},
    {"num_leaves": 255},
    {"num_leaves": 255, "learning_rate": 0.05, "min_child_samples": 5},
    {"num_leaves": 255, "learning_rate": 0.05, "feature_fraction": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1},
)
UNITS = {"auc": "", "log-loss": "", "calibration": "", "training": "s"}
Floats = NDArray[np.float32]
Labelled = tuple[Codes, Floats]
Score = Callable[[Codes], Floats]


@dataclass(frozen=True)
class ClickData:
    """Output of etl, and the rows of one seed: to train on, to choose by, and the test."""

    graph: Graph
    task: Callable[[Model], Task]
    train: Labelled
    validation: Labelled
    test: Labelled


def encode(data: Path, folder: Path) -> Callable[[int], ClickData]:
    """Runs etl on rows in random order, of which the test rows are the newest; returns the data of a seed."""
    rows = pl.read_parquet(data / "train.parquet").sample(fraction=1.0, shuffle=True, seed=CUT)
    fields = [name for name in rows.columns if name not in ("label", "user", "item")]
    rows.with_columns(at=pl.int_range(pl.len()).cast(pl.Float64)).write_parquet(folder / "clicks.parquet")
    spec = RecommenderSpec.model_validate(
        {
            "name": "clicks",
            "data": {"interactions": {"uri": str(folder / "clicks.parquet")}},
            "schema": {"user": "user", "item": "item", "time": "at", "label": {"column": "label", "positive": ">= 1"}},
            "features": [{"categorify": ["user", "item", *fields], "min_count": 1}],
            "split": {"by": "time", "test": f"{round(len(rows) * TEST)}s"},
            "gates": [{"metric": "auc", "min": 0.5}],
        }
    )
    _, outcome = InProcessStages(folder).run("etl", spec, "full", {})
    return partial(_of_seed, outcome.files, folder)


def _of_seed(files: Mapping[str, Path], folder: Path, seed: int) -> ClickData:
    graph = load_graph(lambda name: files[name])
    items = read_table(files["items.features.parquet"], graph, "item")
    keys = pl.read_parquet(files["items.parquet"], columns=[graph.item])[graph.item]
    popularity = fit_popularity(pl.scan_parquet(files["train.parquet"]), keys, None)

    def task(model: Model) -> Task:
        return Task(model, graph, files["train.parquet"], items, None, popularity, logging.getLogger("stage"), ranked=False)

    def read(path: Path) -> Labelled:
        batches = Batches(path, graph, items, None, 1 << 20, 0, 1, shuffle=False, unknown_users=0, unknown_items=0)
        (batch,) = batches.epoch(0)
        return batch.columns, batch.labels

    part = folder / f"seed-{seed}-{time.monotonic_ns()}"
    part.mkdir()
    rest, validation = hold_out(files["train.parquet"], VALIDATION, seed, part)
    return ClickData(graph, task, read(rest), read(validation), read(files["holdout.parquet"]))


def by_family(preset: str, settings: Settings, data: ClickData, seed: int) -> Score:
    model = Model.model_validate({"preset": preset, "params": settings, "train": {"validation": VALIDATION, "seed": seed}})
    return family_of(model.family).train(data.task(model)).model.score


def by_torch(name: str, settings: Settings, data: ClickData, seed: int) -> Score:
    from benchmarks.peers import clicks_torch

    train, validation = ((matrix(columns), labels) for columns, labels in (data.train, data.validation))
    score = clicks_torch.fit(name, settings, train, validation, seed, lambda labels, scores: auc(labels, scores) or 0.0)
    return lambda columns: score(matrix(columns))


def by_xgboost(settings: Settings, data: ClickData, seed: int) -> Score:
    import xgboost

    kinds = ["c"] * len(data.graph.features)

    def rows_of(columns: Codes, labels: Floats | None = None) -> Any:
        return xgboost.DMatrix(matrix(columns), labels, feature_types=kinds, enable_categorical=True)

    train, validation = rows_of(*data.train), rows_of(*data.validation)
    options = {"objective": "binary:logistic", "eval_metric": "auc", "tree_method": "hist", "eta": 0.1, "seed": seed, "nthread": 1}
    trees = xgboost.train({**options, **settings}, train, TREES, [(validation, "validation")], early_stopping_rounds=20, verbose_eval=False)

    def score(columns: Codes) -> Floats:
        scores: Floats = trees.predict(rows_of(columns), iteration_range=(0, trees.best_iteration + 1))
        return scores

    return score


def by_lightgbm(settings: Settings, data: ClickData, seed: int) -> Score:
    import lightgbm

    names = list(range(len(data.graph.features)))
    train = lightgbm.Dataset(matrix(data.train[0]), data.train[1], categorical_feature=names)
    validation = lightgbm.Dataset(matrix(data.validation[0]), data.validation[1], categorical_feature=names, reference=train)
    options = {"objective": "binary", "metric": "auc", "learning_rate": 0.1, "seed": seed, "verbose": -1, "num_threads": 1}
    stop = lightgbm.early_stopping(20, verbose=False)
    trees = lightgbm.train({**options, **settings}, train, TREES, [validation], callbacks=[stop])
    return lambda columns: np.asarray(trees.predict(matrix(columns), num_iteration=trees.best_iteration), np.float32)


def matrix(columns: Codes) -> NDArray[np.int64]:
    return np.stack([columns[name] for name in sorted(columns)], axis=1).astype(np.int64)


CONTENDERS: dict[str, tuple[Callable[[Settings, ClickData, int], Score], tuple[Settings, ...]]] = {
    **{f"eyas: {name}": (partial(by_family, f"frappe-{name}"), NEURAL) for name in ("mlp", "wide_deep", "dlrm", "deepfm", "dcn")},
    "eyas: gbm": (partial(by_family, "frappe-gbm"), GROWN),
    **{f"torch: {name}": (partial(by_torch, name), PLAIN) for name in ("mlp", "deepfm", "dcn-v2")},
    "xgboost": (by_xgboost, XGBOOST),
    "lightgbm": (by_lightgbm, LIGHTGBM),
}
"""How each contender is trained, and the settings of its trials."""


def measured(scores: Floats, labels: Floats) -> dict[str, float]:
    calibration = calibrate((labels > 0).astype(np.int8), scores)
    area = auc(labels > 0, scores)
    assert calibration is not None and area is not None, "scores are no probabilities, or all labels are equal"
    return {"auc": area, "log-loss": calibration.log_loss, "calibration": float(scores.mean() / labels.mean())}


@benchmark("clicks")
def clicks(
    data: Annotated[Path, "folder with train.parquet"],
    seeds: Annotated[int, "trainings of each contender, each with its own rows to choose by"] = 5,
    contenders: Annotated[Sequence[str], "contenders"] = tuple(CONTENDERS),
    store: Annotated[Path, "JSON lines of finished trainings; delete it to start again"] = FOLDER / "clicks.jsonl",
) -> Iterator[Outcome]:
    logging.getLogger("stage").setLevel(logging.ERROR)
    store.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    results: dict[tuple[str, int, int], dict[str, Any]] = {(run["contender"], run["trial"], run["seed"]): run for run in done}
    with scratch() as folder, store.open("a") as stream:
        of_seed = cache(encode(data, folder))

        def trained(contender: str, trial: int, seed: int) -> Mapping[str, Any]:
            if (contender, trial, seed) not in results:
                rows, (train, trials), began = of_seed(seed), CONTENDERS[contender], time.monotonic()
                score = train(trials[trial], rows, seed)
                result: dict[str, Any] = {"contender": contender, "trial": trial, "seed": seed, "training": time.monotonic() - began}
                result["validation"] = auc(rows.validation[1] > 0, score(rows.validation[0]))
                result |= measured(score(rows.test[0]), rows.test[1])
                results[contender, trial, seed] = result
                stream.write(json.dumps(result) + "\n")
                stream.flush()
                say(" ".join(f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}" for name, value in result.items()))
            return results[contender, trial, seed]

        for contender in contenders:
            trials = CONTENDERS[contender][1]
            trial = max(range(len(trials)), key=lambda trial: trained(contender, trial, 1)["validation"])
            runs = [trained(contender, trial, seed) for seed in range(1, seeds + 1)]
            note = f"AUC {_spread(runs, 'auc')}, log-loss {_spread(runs, 'log-loss')}, trial {trial + 1} of {len(trials)}"
            yield from rows_of_runs("frappe, given labels", contender, runs, UNITS, note)


def _spread(runs: Sequence[Mapping[str, float]], name: str) -> str:
    values = [run[name] for run in runs]
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=min(1, len(values) - 1)):.4f}"


if __name__ == "__main__":
    clicks()
