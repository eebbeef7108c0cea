"""Training time, quality and memory of `mf` and `ease` on likes of last.fm's shape, beside ALS of the package `implicit`.

    python -m benchmarks.factorise [--runs 3] [--only NAME ...] [--users 1892] [--items 17632] [--likes 92834]

The likes are drawn from a seed, another one in each run. Items have a popularity as skewed as in last.fm: most have one or two likes. Users
like items of a few groups of their own, and popular items. One like of each user is held out; HR@10 is the share of them among the first
ten of the whole catalogue without the user's other likes. The families train through their entry points, with their search for the
regularisation; `implicit` has its own defaults and no search. Each training is a process of its own; seconds are those of the training
alone, memory is the peak of the process, with imports. `implicit` is installed on first use (var/bench/implicit).
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.harness import HIDDEN, Fields, Figures, Missed, Outcome, benchmark, environment, say, scratch, timed, turns, watched
from benchmarks.tables import answer
from pipelines.models.families import family_of
from pipelines.models.family import ScoresAll
from pipelines.trials.task import prepare
from shared.contracts.models import Model

PEER = Path(__file__).parent / "peers" / "als_implicit.py"
IMPLICIT = "implicit==0.7.3"
GROUPS, TASTES, OWN = 60, 3, 0.75
"""Groups of items, groups that a user likes, and the share of a user's likes among them."""
SKEW, LEVEL = 1.1, 10
"""Popularity is (LEVEL + rank) to the power of -SKEW: the most popular item has about 600 likes, the median one or two."""
TOP = 10
UNITS = {"seconds": "s", "HR@10": "", "peak memory": "MiB"}
CONTENDERS = ("eyas: mf", "eyas: ease", "implicit: als")
Ints = NDArray[np.int64]


def draw_likes(users: int, items: int, count: int, seed: int) -> tuple[Ints, Ints]:
    """Returns users and items of distinct likes in random order; every item has a like."""
    random = np.random.default_rng(seed)
    popularity = (LEVEL + np.arange(items)) ** -SKEW
    groups = random.integers(0, GROUPS, items)
    tastes = np.argsort(random.random((users, GROUPS)), axis=1)[:, :TASTES]
    codes = random.integers(0, users, items) * items + np.arange(items)
    while len(codes) < count:
        user = random.integers(0, users, count)
        group = np.where(random.random(count) < OWN, tastes[user, random.integers(0, TASTES, count)], GROUPS)
        item = np.empty(count, np.int64)
        for number in range(GROUPS + 1):
            rows, members = np.flatnonzero(group == number), np.flatnonzero((groups == number) | (number == GROUPS))
            item[rows] = random.choice(members, len(rows), p=popularity[members] / popularity[members].sum())
        codes = np.concatenate([codes, random.permutation(np.setdiff1d(user * items + item, codes))])
    return np.divmod(random.permutation(codes[:count]), items)


def write_likes(folder: Path, users: int, items: int, count: int, seed: int) -> tuple[Ints, Ints]:
    """Writes the likes to train on, for Eyas and for the peer; returns the users and items of the held-out likes."""
    user, item = draw_likes(users, items, count, seed)
    _, last = np.unique(user[::-1], return_index=True)
    shown = np.ones(count, bool)
    shown[count - 1 - last] = False
    pl.DataFrame({"user": user[shown], "item": item[shown]}).write_parquet(folder / "likes.parquet")
    np.savez(folder / "likes.npz", users=user[shown], items=item[shown], user_count=users, item_count=items)
    return user[~shown], item[~shown]


def train(family: str, folder: Path, seed: int) -> dict[str, float]:
    """Trains and writes the first items of each user, by user, to `top.npy`."""
    pairs = pl.read_parquet(folder / "likes.parquet")
    model = Model.model_validate({"family": family, "train": {"seed": seed}})
    with scratch() as inputs:
        task = prepare(pairs, model, family_of(family).reads, inputs, logging.getLogger("benchmark"))
        seconds, fitted = timed(lambda: family_of(family).train(task))
    users, items = pairs["user"].unique().sort(), pairs["item"].unique().sort().to_numpy()
    trained = fitted.model
    assert isinstance(trained, ScoresAll)
    scores = np.array(trained.every(task.graph.key("user").state.coded(users))[:, task.items.columns["item"]])
    scores[pairs["user"].to_numpy(), np.searchsorted(items, pairs["item"].to_numpy())] = -np.inf
    np.save(folder / "top.npy", items[np.argsort(-scores, axis=1, kind="stable")[:, :TOP]], allow_pickle=False)
    return {"seconds": seconds, "regularisation": fitted.facts["regularisation"]}


@benchmark("factorise")
def factorise(
    runs: int = 3,
    only: Annotated[list[str] | None, "all by default", CONTENDERS] = None,
    users: int = 1_892,
    items: int = 17_632,
    likes: int = 92_834,
    case: Annotated[list[str] | None, HIDDEN] = None,
) -> Iterator[Outcome]:
    if case:
        answer(train(case[0], Path(case[1]), int(case[2])))
    names = list(only or CONTENDERS)
    commands = {f"eyas: {family}": [sys.executable, "-m", "benchmarks.factorise", "--case", family] for family in ("mf", "ease")}
    if "implicit: als" in names:
        try:
            commands["implicit: als"] = [str(environment("implicit", IMPLICIT)), str(PEER)]
        except (OSError, subprocess.CalledProcessError) as error:
            names.remove("implicit: als")
            yield Missed(f"implicit is not measured: it cannot be installed: {error}")
    figures, by_seed = Figures(f"{users:,} users, {items:,} items, {likes:,} likes"), []
    with scratch(on_disk=True) as folder:
        for turn, name in enumerate(turns(names, runs)):
            seed = 1 + turn // len(names)
            held_out = write_likes(folder, users, items, likes, seed)
            used = watched([*commands[name], str(folder), str(seed)])
            hits = np.load(folder / "top.npy", allow_pickle=False)[held_out[0]] == held_out[1][:, None]
            measured = {"seconds": used.document["seconds"], "HR@10": float(hits.any(axis=1).mean()), "peak memory": used.peak}
            for metric, value in measured.items():
                figures.add(name, metric, UNITS[metric], value)
            by_seed.append({"seed": seed, "contender": name, **measured, **used.document})
            say(" ".join(f"{key}={value}" for key, value in by_seed[-1].items()))
    yield from figures.rows()
    yield Fields(by_seed=by_seed)


if __name__ == "__main__":
    factorise()
