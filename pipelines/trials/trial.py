"""Evaluation data: reads and checks the files, and makes the missing holdout and negatives. All models share it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.data.dedup import frequent
from pipelines.evaluation.cases import Negatives
from pipelines.evaluation.slices import Slice, standard
from pipelines.trials.cases import HeldOutPairs, TrainingPairs, drawn, held_out_pairs, supplied
from pipelines.trials.columns import column_slices
from pipelines.trials.files import PairFile, read_negatives, read_pairs
from pipelines.trials.holdout import cut
from pipelines.trials.task import ITEM, USER
from shared.contracts.trials import EvaluateRequest
from shared.domain.errors import BadData, Invalid

Faults = dict[str, Mapping[str, int]]


@dataclass(frozen=True)
class Trial:
    """Data on which all models are trained and evaluated."""

    training_pairs: TrainingPairs
    train: pl.DataFrame
    """Training rows by index."""
    held_out: HeldOutPairs
    negatives: Mapping[int, Negatives]
    per_case: int
    faults: Faults
    how: tuple[str, ...]
    data: Mapping[str, int]

    @property
    def wrong(self) -> tuple[str, ...]:
        """Faults as text."""
        return tuple(f"{file}: {count:,} {fault}" for file, of in self.faults.items() for fault, count in of.items() if count)


def read_trial(request: EvaluateRequest, log: logging.Logger) -> Trial:
    """Reads and checks the files; makes the missing holdout and negatives."""
    pairs, faults, left = read_train(request.train, request.min_interactions)
    how = [*left]
    if request.test is None:
        train, test, words = cut(pairs, request.holdout, request.seed)
        name = f"the holdout of {pairs.name}"
        how.append(words)
    else:
        if request.holdout is not None:
            raise Invalid("--holdout: not possible with --test: leave out --holdout or --test")
        train, test_file = pairs.frame, read_pairs(Path(request.test))
        test, name = test_file.frame, test_file.name
        how.append(f"judged by {name}")
    training_pairs = TrainingPairs.from_pairs(train)
    for side_name, side in (("user", training_pairs.users), ("item", training_pairs.items)):
        if len(side) < 2:
            raise BadData(f"{pairs.name}: only one {side_name} to train on: at least two are needed")
    held_out = held_out_pairs(test, name, training_pairs)
    if request.negatives is None:
        negatives, negative_faults = drawn(held_out, request.sampled, request.seed)
        where = "drawn negatives"
        how.append(
            f"{request.sampled} negatives for each test pair, drawn evenly (seed {request.seed}) from the items that its user has neither"
            " in the training file nor in the test"
        )
    else:
        file = read_negatives(Path(request.negatives))
        negatives, negative_faults = supplied(file, held_out, training_pairs, request.seed)
        where = file.name
        how.append(f"negatives of {file.name}, without a user's own test items and without repeats")
    how += _HOW
    per_case = next(iter(negatives))
    everything: Faults = {pairs.name: faults, held_out.name: held_out.faults, where: negative_faults}
    numbered = train.with_columns(
        pl.Series(USER, training_pairs.users.places(train["user"])), pl.Series(ITEM, training_pairs.items.places(train["item"]))
    )
    data = {
        "pairs to train on": len(train),
        "users": len(training_pairs.users),
        "items": len(training_pairs.items),
        "test pairs": held_out.cases.count,
        "users with test pairs": len(held_out.cases.users),
    }
    log.info("evaluation data: read pairs=%d users=%d items=%d test_pairs=%d", *list(data.values())[:4])
    trial = Trial(training_pairs, numbered.drop("label", strict=False), held_out, negatives, per_case, everything, tuple(how), data)
    for line in trial.wrong:
        log.info("evaluation data: faulty reason=%s", line)
    if request.strict and trial.wrong:
        raise BadData("; ".join(trial.wrong) + " (without --strict, faults are only counted)")
    return trial


_HOW = (
    "metrics without '/' rank all items of the training file, without the user's items in it; the test item is never left out",
    "ties share the middle rank, so a model that cannot tell items apart gains nothing",
    "pairs of a user or an item without training pairs rank last for every model, and count",
    "intervals: users drawn with replacement; ±: the standard deviation over seeds of training",
)


def read_train(path: str, fewest: int) -> tuple[PairFile, dict[str, int], list[str]]:
    """Reads training pairs without repetitions and without users that have fewer than `fewest` items."""
    pairs = read_pairs(Path(path))
    frame = pairs.frame.unique(["user", "item"], keep="first", maintain_order=True)
    faults = {"repeated pairs, left out": len(pairs.frame) - len(frame)}
    if fewest == 1:
        return replace(pairs, frame=frame), faults, []
    retained = frequent(frame.lazy(), {"user": fewest}).collect()
    if retained.is_empty():
        raise BadData(f"{pairs.name}: no user has {fewest} items: choose a smaller --min-interactions")
    gone = frame["user"].n_unique() - retained["user"].n_unique()
    return replace(pairs, frame=retained), faults, [f"{gone:,} users with fewer than {fewest} items were left out"]


def trial_slices(trial: Trial, request: EvaluateRequest) -> tuple[Slice, ...]:
    """Returns standard slices and column slices; adds a slice of known pairs if some pairs are unknown."""
    held_out, training_pairs = trial.held_out, trial.training_pairs
    counts = training_pairs.of_items
    of_users = np.array([len(case.liked) for case in held_out.cases.users], np.int64)
    of_targets = np.where(held_out.items >= 0, counts[np.maximum(held_out.items, 0)], -1)
    slices = standard(held_out.cases.owners, of_users, of_targets, counts)
    lost = (held_out.users < 0) | (held_out.items < 0)
    known_slice = (Slice("known", "pairs whose user and item are in the training file", ~lost),) if lost.any() else ()
    return (*slices, *known_slice, *column_slices(request, held_out.frame))
