"""Click models on Frappe: our families with their defaults and with presets, beside plain models in torch and boosted trees.

    python -m benchmarks.clicks --data FOLDER [--seeds 5] [--contenders "eyas: dlrm" ...]

FOLDER holds train.parquet with `label` and ten columns of codes (`frappe`). An eighth of the rows, drawn once, is the test; of the others a
seventh, drawn by the seed, chooses the epoch or the number of trees. All contenders get these rows; families by their defaults also train
on the rows to choose by. Each contender has one trial, without a search. Families get their rows from the etl stage and train as in a run;
peers get the same encoded columns.

Results are stored by contender and seed in `--store`; an interrupted run continues. Calibration is the mean prediction of
the test rows, divided by their share of clicks.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
CUT = 1
"""Seed of the test rows."""
TREES = 1_000
"""At most, of plain boosted trees."""
FAMILIES = ("mlp", "wide_deep", "dlrm", "deepfm", "dcn", "gbm")
MODELS: dict[str, dict[str, Any]] = {
    **{f"eyas: {name}": {"family": name} for name in FAMILIES},
    **{f"eyas: frappe-{name}": {"preset": f"frappe-{name}", "train": {"validation": VALIDATION}} for name in FAMILIES},
}
"""Families with their defaults, which hold no rows out, and with the presets for clicks."""
UNITS = {"auc": "", "log-loss": "", "calibration": "", "training": "s"}
Floats = NDArray[np.float32]
Labelled = tuple[Codes, Floats]


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


def by_family(settings: Mapping[str, Any], data: ClickData, seed: int) -> Floats:
    model = Model.model_validate({**settings, "train": {**settings.get("train", {}), "seed": seed}})
    fitted = family_of(model.family).train(data.task(model))
    return fitted.model.score(data.test[0])


def by_torch(name: str, data: ClickData, seed: int) -> Floats:
    from benchmarks.peers import clicks_torch

    train, validation = ((matrix(columns), labels) for columns, labels in (data.train, data.validation))
    score = clicks_torch.fit(name, train, validation, seed, lambda labels, scores: auc(labels, scores) or 0.0)
    return score(matrix(data.test[0]))


def by_xgboost(data: ClickData, seed: int) -> Floats:
    import xgboost

    kinds = ["c"] * len(data.graph.features)
    train, validation, test = (
        xgboost.DMatrix(matrix(columns), labels, feature_types=kinds, enable_categorical=True)
        for columns, labels in (data.train, data.validation, data.test)
    )
    options = {"objective": "binary:logistic", "eval_metric": "auc", "tree_method": "hist", "eta": 0.1, "seed": seed, "nthread": 1}
    trees = xgboost.train(options, train, TREES, [(validation, "validation")], early_stopping_rounds=20, verbose_eval=False)
    scores: Floats = trees.predict(test, iteration_range=(0, trees.best_iteration + 1))
    return scores


def by_lightgbm(data: ClickData, seed: int) -> Floats:
    import lightgbm

    names = list(range(len(data.graph.features)))
    train = lightgbm.Dataset(matrix(data.train[0]), data.train[1], categorical_feature=names)
    validation = lightgbm.Dataset(matrix(data.validation[0]), data.validation[1], categorical_feature=names, reference=train)
    options = {"objective": "binary", "metric": "auc", "learning_rate": 0.1, "seed": seed, "verbose": -1, "num_threads": 1}
    stop = lightgbm.early_stopping(20, verbose=False)
    trees = lightgbm.train(options, train, TREES, [validation], callbacks=[stop])
    return np.asarray(trees.predict(matrix(data.test[0]), num_iteration=trees.best_iteration), np.float32)


def matrix(columns: Codes) -> NDArray[np.int64]:
    return np.stack([columns[name] for name in sorted(columns)], axis=1).astype(np.int64)


CONTENDERS: dict[str, Callable[[ClickData, int], Floats]] = {
    **{name: partial(by_family, settings) for name, settings in MODELS.items()},
    **{f"torch: {name}": partial(by_torch, name) for name in ("mlp", "deepfm", "dcn-v2")},
    "xgboost": by_xgboost,
    "lightgbm": by_lightgbm,
}


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
    results = {(result["contender"], result["seed"]): result for result in done}
    with scratch() as folder, store.open("a") as stream:
        of_seed = encode(data, folder)
        for seed in range(1, seeds + 1):
            rows: ClickData | None = None
            for contender in contenders:
                if (contender, seed) in results:
                    continue
                rows = rows or of_seed(seed)
                began = time.monotonic()
                scores = CONTENDERS[contender](rows, seed)
                result = {"contender": contender, "seed": seed, "training": time.monotonic() - began} | measured(scores, rows.test[1])
                results[contender, seed] = result
                stream.write(json.dumps(result) + "\n")
                stream.flush()
                say(" ".join(f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}" for name, value in result.items()))
    for contender in contenders:
        runs = [results[contender, seed] for seed in range(1, seeds + 1)]
        note = f"AUC {_spread(runs, 'auc')}, log-loss {_spread(runs, 'log-loss')}, one trial"
        yield from rows_of_runs("frappe, given labels", contender, runs, UNITS, note)


def _spread(runs: Sequence[Mapping[str, float]], name: str) -> str:
    values = [run[name] for run in runs]
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=min(1, len(values) - 1)):.4f}"


if __name__ == "__main__":
    clicks()
