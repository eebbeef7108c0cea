"""NeuMF's protocol at ml-20m's shape, ours beside a plain loop in torch, turn by turn in one run.

    python -m benchmarks.gpu --protocol [--scale 1] [--epochs 30] [--seeds 1] [--cases NAME ...]

Likes by a power law and by tastes (`gpu_world`); four negatives for each, drawn anew in every epoch; 1,048,576 rows a step; Adam at
0.0045, dropout 0.5; after each epoch each user's held-out item among a hundred that it never met. An epoch of ours, one of the loop's, and
so on: figures are medians of epochs, without the first, which warms up and compiles. An item is a row, negatives among them. The likes are
made: hr@10 of them tells whether both sides learn alike, and nothing of ml-20m. The published rates of Adam's moments (0.25, 0.5) are no
setting here: both sides take 0.9 and 0.999.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.report import Row

TOP, AWAY = 10, 0.99
"""A side is there when its hr@10 is this share of the best that the plain loop came to."""


@dataclass
class Course:
    """Of one side: epoch by epoch."""

    name: str
    training: list[float] = field(default_factory=list)
    evaluation: list[float] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return max(self.hits)

    def reached(self, value: float) -> int | None:
        """The first epoch, from 1."""
        return next((number for number, one in enumerate(self.hits, 1) if one >= value), None)


def turns(
    sides: Sequence[Any], asked: dict[str, Any], each: int, batch: int, epochs: int, sample: Callable[[], Sequence[float]]
) -> list[Course]:
    """`each`: rows of a case. `sample`: how busy the device is, in percent, or nothing."""
    found = [Course(one.name) for one in sides]
    for number in range(epochs):
        for side, course in zip(sides, found, strict=True):
            with sampled(sample) as busy:
                began = time.perf_counter()
                losses = [step() for step in side.epoch(number)]
                mean = float(sum(losses) / len(losses))  # waits for the device
                trained = time.perf_counter()
            hits = hit_rate(side.scores(asked, batch), each)
            ended = time.perf_counter()
            course.training.append(len(losses) * batch / (trained - began))
            course.evaluation.append(len(asked["user"]) / (ended - trained))
            course.hits.append(hits)
            course.losses.append(mean)
            course.busy += busy
            course.seconds.append(ended - began)
    return found


def hit_rate(scores: Any, each: int) -> float:
    """The first of every `each` rows is the one to be found; equal scores share the middle rank."""
    from pipelines.training.on_device import PlacedCases

    starts = np.arange(0, len(scores), each, dtype=np.int64)
    ranks = PlacedCases.of(starts, len(scores), scores.device).ranks(scores)
    return float((ranks <= TOP).double().mean())


@contextmanager
def sampled(sample: Callable[[], Sequence[float]], every: float = 0.5) -> Iterator[list[float]]:
    """What it says now and then, from a thread."""
    found, ended = list[float](), threading.Event()

    def look() -> None:
        while not ended.wait(every):
            if not (now := sample()):
                return
            found.extend(now)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def rows_of(case: str, courses: Sequence[Course], moved: float, copies: Sequence[float]) -> list[Row]:
    """The last course is the plain loop's. `moved`: bytes of embeddings a row of a step."""
    plain, found = courses[-1], list[Row]()
    target = AWAY * plain.best
    for one in courses:
        ours = one is not plain
        for metric, unit, values, beside in (
            ("training", "items/s", one.training[1:], plain.training[1:]),
            ("evaluation", "items/s", one.evaluation[1:], plain.evaluation[1:]),
        ):
            ratio = {plain.name: statistics.median(values) / statistics.median(beside)} if ours else {}
            note = f"{ratio[plain.name]:.2f} of the plain loop's" if ours else ""
            found.append(Row(case, one.name, metric, unit, values, ratio, note))
        if ours:
            speeds = [moved * speed / 1e9 for speed in one.training[1:]]
            share = statistics.median(speeds) * 1e9 / statistics.median(copies)
            found.append(Row(case, one.name, "bytes of embeddings", "GB/s", speeds, note=f"{share:.1%} of a copy's"))
        reached = one.reached(target)
        said = f"epoch {reached}" if reached else f"not in {len(one.hits)} epochs"
        note = f"{AWAY:.0%} of the plain loop's best in {said}; loss {one.losses[0]:.4f} to {one.losses[-1]:.4f}"
        found.append(Row(case, one.name, "best hr@10/100", "", [one.best], note=note))
        found.append(Row(case, one.name, "first epoch", "s", [one.seconds[0]], note="warming up, compiling"))
        if one.busy:
            found.append(Row(case, one.name, "utilisation", "%", one.busy))
    return found


@dataclass(frozen=True)
class Machine:
    """What the run is on."""

    framework: Any
    device: Any
    copies: Sequence[float]
    """Bytes a second of a plain copy, read and written."""
    sample: Callable[[], Sequence[float]]
    bytes_of: Callable[[Any, int], float]
    """That a step of so many rows moves in embeddings."""


def measured(machine: Machine, case: str, how: dict[str, Any], scale: float, batch: int, epochs: int, seeds: int) -> list[Row]:
    """Speeds are of all seeds' epochs."""
    from benchmarks.gpu_counts import asked
    from benchmarks.gpu_sides import Ours, Plain, Side
    from benchmarks.gpu_world import AGAINST, world

    likes, together = world(machine.device, scale), list[list[Course]]()
    for seed in range(1, seeds + 1):
        ours = Ours(machine.framework, likes, batch, seed, how)
        sides: list[Side] = [ours, Plain(likes, batch, seed, how)]
        together.append(turns(sides, likes.asked, 1 + AGAINST, batch, epochs, machine.sample))
    found, moved = list[Row](), machine.bytes_of(ours.architecture, batch) / batch
    for number, courses in enumerate(together, 1):
        found += rows_of(case if seeds == 1 else f"{case}, seed {number}", courses, moved, machine.copies)
    for side in sides if not how.get("jit") else ():
        one = asked(next(iter(side.epoch(epochs))))
        note = f"{one.waits} numbers asked of the device, {one.brought} brought there; making the batch included"
        found.append(Row(case, side.name, "operators", "a step", [float(one.operators)], note=note))
        found.append(Row(case, side.name, "written by operators", "kB a row", [one.written / batch / 1e3]))
    return found
