"""The files of a trial, read and checked; what wasn't given is cut and drawn. It is the same for every model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.data.thinning import frequent
from pipelines.evaluation.cases import Negatives
from pipelines.evaluation.slices import Slice, standard
from pipelines.trials.cases import Held, Known, drawn, held_pairs, supplied
from pipelines.trials.columns import column_slices
from pipelines.trials.files import Pairs, read_negatives, read_pairs
from pipelines.trials.holdout import cut
from pipelines.trials.task import ITEM, USER
from shared.contracts.trials import EvaluateRequest
from shared.domain.errors import BadData, Invalid

Faults = dict[str, Mapping[str, int]]


@dataclass(frozen=True)
class Trial:
    """What every model is tried on."""

    known: Known
    train: pl.DataFrame
    """By place."""
    held: Held
    negatives: Mapping[int, Negatives]
    per_case: int
    faults: Faults
    how: tuple[str, ...]
    data: Mapping[str, int]

    @property
    def wrong(self) -> tuple[str, ...]:
        """The faults in words."""
        return tuple(f"{file}: {count:,} {what}" for file, of in self.faults.items() for what, count in of.items() if count)


def read_trial(request: EvaluateRequest, log: logging.Logger) -> Trial:
    """Reads and checks the files, and cuts and draws what wasn't given."""
    pairs, faults, left = read_train(request.train, request.min_interactions)
    how = [*left]
    if request.test is None:
        train, test, words = cut(pairs, request.holdout, request.seed)
        name = f"what is held out of {pairs.name}"
        how.append(words)
    else:
        if request.holdout is not None:
            raise Invalid("--holdout: there is a --test already: leave one of them out")
        train, given = pairs.frame, read_pairs(Path(request.test))
        test, name = given.frame, given.name
        how.append(f"judged by {name}")
    known = Known.from_pairs(train)
    for what, side in (("user", known.users), ("item", known.items)):
        if len(side) < 2:
            raise BadData(f"{pairs.name}: it has one {what} to train on: at least two are needed to tell anybody's taste")
    held = held_pairs(test, name, known)
    if request.negatives is None:
        negatives, found = drawn(held, request.sampled, request.seed)
        where = "drawn negatives"
        how.append(
            f"{request.sampled} negatives for each test pair, drawn evenly (seed {request.seed}) from the items that its user has neither"
            " in the file to train on nor in the test"
        )
    else:
        file = read_negatives(Path(request.negatives))
        negatives, found = supplied(file, held, known, request.seed)
        where = file.name
        how.append(f"negatives of {file.name}, without a user's own test items and without repeats")
    how += _HOW
    per_case = next(iter(negatives))
    everything: Faults = {pairs.name: faults, held.name: held.faults, where: found}
    numbered = train.with_columns(pl.Series(USER, known.users.places(train["user"])), pl.Series(ITEM, known.items.places(train["item"])))
    data = {
        "pairs to train on": len(train),
        "users": len(known.users),
        "items": len(known.items),
        "test pairs": held.cases.count,
        "users with test pairs": len(held.cases.users),
    }
    log.info("%s pairs of %s users and %s items; %s test pairs", *(f"{data[one]:,}" for one in list(data)[:4]))
    found_so = Trial(known, numbered.drop("label", strict=False), held, negatives, per_case, everything, tuple(how), data)
    for line in found_so.wrong:
        log.info("%s", line)
    if request.strict and found_so.wrong:
        raise BadData("; ".join(found_so.wrong) + " (without --strict they are counted)")
    return found_so


_HOW = (
    "without '/': ranked in the full catalogue, which is every item of the file to train on, without what the user has there; the test item"
    " is never left out",
    "ties share the middle rank, so a model that can't tell items apart earns nothing",
    "pairs of a user or an item that training doesn't know stand last for every model, and count",
    "intervals: users drawn with replacement; ±: the standard deviation over seeds of training",
)


def read_train(path: str, fewest: int) -> tuple[Pairs, dict[str, int], list[str]]:
    """Each pair once, as often as it is met first."""
    pairs = read_pairs(Path(path))
    frame = pairs.frame.unique(["user", "item"], keep="first", maintain_order=True)
    faults = {"repeated pairs, left out": len(pairs.frame) - len(frame)}
    if fewest == 1:
        return replace(pairs, frame=frame), faults, []
    kept = frequent(frame.lazy(), {"user": fewest}).collect()
    if kept.is_empty():
        raise BadData(f"{pairs.name}: no user has {fewest} items: choose a smaller --min-interactions")
    gone = frame["user"].n_unique() - kept["user"].n_unique()
    return replace(pairs, frame=kept), faults, [f"{gone:,} users with fewer than {fewest} items were left out"]


def trial_slices(trial: Trial, request: EvaluateRequest) -> tuple[Slice, ...]:
    """The standard ones, those of columns, and where some pairs can't be found by any model all the others."""
    held, known = trial.held, trial.known
    counts = known.of_items
    of_users = np.array([len(one.liked) for one in held.cases.users], np.int64)
    of_targets = np.where(held.items >= 0, counts[np.maximum(held.items, 0)], -1)
    found = standard(held.cases.owners, of_users, of_targets, counts)
    lost = (held.users < 0) | (held.items < 0)
    known_ones = (Slice("known", "pairs whose user and item are in the file to train on", ~lost),) if lost.any() else ()
    return (*found, *known_ones, *column_slices(request, held.frame))
