"""The click benchmark's work by XGBoost: `python criteo_xgboost.py FOLDER` with train.npz, choose.npz and judge.npz; writes scores.npy.

Of a column of codes, which lie in the order of their frequency, it takes the code and the share of clicks among the rows of that code,
drawn towards the mean by twenty rows; of rows to train on out of five folds. Trees are added until twenty make the rows to choose by no
better.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

FOLDS, SMOOTHING, TREES, PATIENCE = 5, 20.0, 1_000, 20
SETTINGS = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 8, "eta": 0.1, "min_child_weight": 20, "max_bin": 256}


def main() -> None:
    folder = Path(sys.argv[1])
    parts = {name: dict(np.load(folder / f"{name}.npz", allow_pickle=False)) for name in ("train", "choose", "judge")}
    began = time.perf_counter()
    train = parts["train"]
    folds = np.random.default_rng(1).integers(0, FOLDS, len(train["labels"]))
    given = {name: [one["numbers"], one["codes"].astype(np.float32)] for name, one in parts.items()}
    for column in range(train["codes"].shape[1]):
        codes, size = (
            {name: one["codes"][:, column] for name, one in parts.items()},
            1 + max(int(one["codes"][:, column].max()) for one in parts.values()),
        )
        apart = np.empty(len(folds), np.float32)
        for fold in range(FOLDS):
            out = folds == fold
            apart[out] = _shares(codes["train"][~out], train["labels"][~out], size)[codes["train"][out]]
        whole = _shares(codes["train"], train["labels"], size)
        for name in parts:
            given[name].append((apart if name == "train" else whole[codes[name]])[:, None])
    rows = {name: xgboost.DMatrix(np.concatenate(given[name], axis=1), parts[name]["labels"]) for name in parts}
    model = xgboost.train(
        SETTINGS | {"eval_metric": "logloss"},
        rows["train"],
        TREES,
        evals=[(rows["choose"], "choose")],
        early_stopping_rounds=PATIENCE,
        verbose_eval=False,
    )
    seconds, trees = time.perf_counter() - began, model.best_iteration + 1
    np.save(folder / "scores.npy", model.predict(rows["judge"], iteration_range=(0, trees)), allow_pickle=False)
    sys.stdout.write(json.dumps({"seconds": seconds, "trees": trees}) + "\n")


def _shares(codes: Any, labels: Any, size: int) -> Any:
    clicks, count = np.bincount(codes, labels, size), np.bincount(codes, minlength=size)
    return ((clicks + SMOOTHING * labels.mean()) / (count + SMOOTHING)).astype(np.float32)


if __name__ == "__main__":
    main()
