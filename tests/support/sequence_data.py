"""Users who walk through a catalogue in a known order, for the family that learns sequences. As a program, the first steps of training on a
framework, in every way:

python -m tests.support.sequence_data FRAMEWORK OUT.npz
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.models.attention.item_features import FeaturesOfCodes, ItemFeatures, Parts
from pipelines.models.attention.shape import ITEMS as VECTORS
from pipelines.models.attention.shape import Shape, begin
from pipelines.models.attention.windows import ItemSample, Windows
from pipelines.models.family import Task
from pipelines.training.likes import LikePairs, LikesByRow
from shared.contracts.models import Model
from tests.support import taste_data

USERS, ITEMS, STEPS = 48, 16, 9
SMALL: dict[str, Any] = {"width": 16, "blocks": 1, "length": 8, "dropout": 0.0}


def pairs(users: int = USERS, items: int = ITEMS, steps: int = STEPS, shift: int = 0) -> LikePairs:
    """Each user begins somewhere in a circle of items and goes on to the next one, a step at a time; all of them in turns."""
    step, user = (side.ravel() for side in np.meshgrid(np.arange(steps), np.arange(users), indexing="ij"))
    return LikePairs(user, (user * 5 + shift + step) % items, users, items)


def ahead(users: int = USERS, items: int = ITEMS, steps: int = STEPS) -> Any:
    """The item that comes next for each."""
    return (np.arange(users) * 5 + steps) % items


def task(folder: Path, liked: LikePairs | None = None, parent: object = None, train: dict[str, Any] | None = None, **more: Any) -> Task:
    made = taste_data.task(folder, liked or pairs(), "session", parent)
    settings = {"epochs": 40, "learning_rate": 0.01, "batch_size": 16} | (train or {})
    return replace(made, model=Model.model_validate({"family": "session", "params": SMALL | more, "train": settings}))


def by_user(liked: LikePairs) -> LikesByRow:
    """By code, in order."""
    order = np.argsort(liked.users, kind="stable")
    lengths = np.bincount(liked.users + 2, minlength=liked.user_count + 2)
    return LikesByRow(np.concatenate([[0], np.cumsum(lengths)]), (liked.items[order] + 2).astype(np.int32))


VARIANTS: dict[str, dict[str, Any]] = {
    "next": {},
    "masked": {"objective": "masked"},
    "drawn": {"draw": 6},
    "features": {"unknown": 0.0},
    "features_drawn": {"unknown": 0.0, "draw": 6},
    "features_hidden": {"unknown": 0.3},
    "features_drawn_hidden": {"unknown": 0.3, "draw": 6},
}


def main() -> None:
    from pipelines.models.neural.frameworks import load_framework

    name, out = sys.argv[1:]
    framework = load_framework(name)  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for variant, settings in VARIANTS.items():
        found |= {f"{variant}/{what}": value for what, value in _first_steps(framework, **settings).items()}
    with Path(out).open("wb") as stream:
        np.savez(stream, **found)


def _first_steps(framework: Any, objective: Any = "next", draw: int | None = None, unknown: float | None = None) -> dict[str, Any]:
    """`unknown`: the share of items without a code in a step; None: items have no features."""
    from pipelines.models.attention.learning import SequenceStep
    from pipelines.models.neural.step import StepOptions

    items = np.arange(ITEMS + 2)
    parts = Parts(np.stack([1 + items % 3, 4 + items % 2], axis=1).astype(np.int32), np.full((ITEMS + 2, 2), 0.5, np.float32))
    shape = Shape(ITEMS + 2, 8, 1, 2, 5, objective, features=6 if unknown is not None else 0)
    sequences = by_user(pairs())
    sample = None if draw is None else ItemSample(np.bincount(sequences.others, minlength=shape.items), draw)
    windows = Windows(Path("none"), sequences, shape, 20, 3, mask=0.4, sample=sample)
    features = None if unknown is None else FeaturesOfCodes(ItemFeatures(()), parts, unknown)
    options = StepOptions("sgd", 0.1)
    step = SequenceStep(framework, shape, begin(shape, 7), options, 0.0, draw is not None, lambda *_: np.empty(0), features)
    losses = [float(step(batch)) for epoch in range(2) for batch, _ in windows.placed(epoch)]
    found = {f"weights/{path}": one for path, one in step.weights().items()}
    rows = np.array([[2, 3, 4, 0, 0], [0] * 5, [9, 8, 7, 6, 5]], np.int32)
    before = step.state()
    again = []
    for _ in range(2):
        again.append([float(step(batch)) for batch, _ in windows.placed(2)])
        step.restore(before)
    return {
        "losses": np.array(losses),
        "repeated": np.array(again),
        "apart": step.compare(rows).largest,
        "begun": begin(shape, 7)[VECTORS],
        **found,
    }


if __name__ == "__main__":
    main()
