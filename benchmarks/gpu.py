"""NeuMF at ml-20m's shape with all rows on the device that trains: items a second of training and of scoring, by precision and compiler.

    python -m benchmarks.gpu [--scale 1] [--steps 20] [--cases NAME ...]
    python -m benchmarks.gpu --protocol [--scale 1] [--epochs 30] [--seeds 1] [--cases NAME ...]

A synthetic twin: as many users, items and likes as ml-20m has, by a power law, four negatives for each, drawn on the device; 1,048,576 rows
a step; products of 64, layers 256-256-128-64, dropout 0.5. It runs on the GPU that torch sees, or on the CPU, and says on which; `--scale
0.001` makes users, items, likes and batch a thousandth, to see that it works. An item is a row, negatives among them. Beside it are the
moved bytes of embeddings a second, and what a plain copy moves on the same device in the same run.

`--protocol` trains on likes by a power law and by tastes, four negatives for each, drawn anew in every epoch; Adam at 0.0045. After each
epoch each user's held-out item is ranked among a hundred that it never met. An epoch of ours, one of a plain loop in torch, and so on:
figures are medians of epochs, without the first, which warms up and compiles. The likes are synthetic: their hr@10 shows whether both sides
learn alike, and nothing of ml-20m. The published rates of Adam's moments (0.25, 0.5) are no setting here: both sides take 0.9 and 0.999.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch

from benchmarks.gpu_counts import count_work
from benchmarks.gpu_sides import AGAINST, ITEMS, USERS, Ours, Plain, Side, likes_by_taste, random_likes, scaled
from benchmarks.harness import Fields, Outcome, Row, benchmark, say, timed
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.resident import ResidentStep
from pipelines.training.on_device import PlacedCases

BATCH, CANDIDATES, SEED = 1_048_576, 100, 1
TOP, SHARE = 10, 0.99
"""A side is as good when its hr@10 is this share of the plain loop's best."""
CASES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"half": True},
    "float16, scale 128": {"half": True, "float16": True, "scale": 128.0},
    "float32, compiled": {"jit": True},
    "float16, dynamic scale": {"half": True, "float16": True},
    "float16, scale 128, compiled": {"half": True, "float16": True, "scale": 128.0, "jit": True},
    "float32, compiled, graphs": {"jit": "graphs"},
    "float16, scale 128, compiled, graphs": {"half": True, "float16": True, "scale": 128.0, "jit": "graphs"},
}
PUBLISHED = {
    "training, mixed precision": 14.9e6,
    "training, mixed precision, XLA": 24.3e6,
    "scoring, mixed precision": 29.2e6,
}
"""Items a second of one V100, from NVIDIA's NCF example: not ours, and of another machine."""


@benchmark("gpu")
def gpu(
    scale: float = 1.0,
    steps: int = 20,
    runs: int = 3,
    cases: Annotated[list[str] | None, "all by default", tuple(CASES)] = None,
    protocol: Annotated[bool, "epochs and rankings, beside a plain loop in torch"] = False,
    epochs: Annotated[int, "of the protocol; the first is left out of its speeds"] = 30,
    batch: Annotated[int | None, "rows a step; by default the published ones, scaled"] = None,
    seeds: Annotated[int, "of the protocol"] = 1,
) -> Iterator[Outcome]:
    if protocol and epochs < 2:
        raise SystemExit("--epochs: the first epoch warms up and is not measured; use 2 at least")
    framework = load_framework("torch")
    device = framework.table(np.zeros(1, np.float32)).device
    name, copies = str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu", [copied(device) for _ in range(runs)]
    rows, missing = batch or scaled(BATCH, scale), {}
    say(f"device: {name}")
    bench = "gpu-protocol" if protocol else "gpu"
    yield Fields(bench=bench, device=name, scale=scale, batch=rows, published_on_one_v100=PUBLISHED)
    yield Row("the device", name, "a copy, read and written", "GB/s", [speed / 1e9 for speed in copies])
    for case in cases or CASES:
        jit = CASES[case].get("jit", False)
        if jit and (why := framework.missing_compiler(jit)):
            missing[case] = why
        elif protocol:
            yield from measure_protocol(framework, case, device, copies, scale, rows, epochs, seeds)
        else:
            yield from measure_steps(framework, case, device, scale, rows, steps, runs)
    if not utilisation(device):
        missing["utilisation"] = "neither NVML nor nvidia-smi tells of a GPU here"
    yield Fields(not_measured=missing)
    for case, reason in missing.items():
        say(f"{case}: not measured: {reason}")
    for figure, value in PUBLISHED.items():
        say(f"published of one V100, not ours: {figure}: {value / 1e6:.1f} million items/s")


def measure_steps(framework: Framework, case: str, device: Any, scale: float, batch: int, steps: int, runs: int) -> Iterator[Row]:
    side = Ours(framework, random_likes(device, scale, SEED), batch, SEED, CASES[case])
    course = itertools.chain.from_iterable(map(side.epoch, itertools.count()))
    losses, speeds, busy = [float(next(course)()) for _ in range(3)], [], list[float]()
    for _ in range(runs):
        began = time.perf_counter()
        new = [next(course)() for _ in range(steps)]
        losses += map(float, new)  # waits for the device
        speeds.append(steps * batch / (time.perf_counter() - began))
        busy += utilisation(device)
    skipped = side.step.scale.skipped if side.step.scale is not None else 0
    note = f"loss {losses[0]:.4f} to {np.mean(losses[-4:]):.4f}, {skipped} steps skipped"
    moved = bytes_of(side.architecture, batch) / batch / 1e9
    for metric, unit, values in (
        ("training", "items/s", speeds),
        ("scoring", "items/s", [scoring(side.step, scale, batch) for _ in range(runs)]),
        ("bytes of embeddings", "GB/s", [moved * speed for speed in speeds]),
        ("utilisation", "%", busy),
    ):
        if values:
            yield Row("ml-20m's shape", f"eyas on torch, {case}", metric, unit, values, note=note if metric == "training" else "")


def bytes_of(architecture: Architecture, batch: int) -> float:
    """Of a step: vectors looked up and their gradients, read and written each; table, gradient and two moments read, all but the gradient
    written."""
    looked_up = sum(4 * 4 * table.width * batch for table in architecture.tables)
    return looked_up + sum(7 * 4 * table.width * table.cardinality for table in architecture.tables)


def scoring(step: ResidentStep, scale: float, batch: int) -> float:
    """Rows a second of users with a hundred candidates each, scores brought back."""
    random = np.random.default_rng(SEED)
    users = np.repeat(np.arange(max(1, batch // CANDIDATES), dtype=np.int32) % scaled(USERS, scale), CANDIDATES)
    columns = {"user": users, "item": random.integers(0, scaled(ITEMS, scale), len(users), dtype=np.int32)}
    step.score(columns)
    return 5 * len(users) / timed(lambda: [step.score(columns) for _ in range(5)])[0]


def copied(device: Any) -> float:
    """Bytes a second, read and written."""
    size = 1 << (28 if device.type == "cuda" else 26)  # beyond the caches of either
    source, target = (torch.ones(size // 4, device=device) for _ in range(2))
    wait: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    target.copy_(source)
    wait()
    return 8 * 2 * size / timed(lambda: ([target.copy_(source) for _ in range(8)], wait()))[0]


def utilisation(device: Any) -> list[float]:
    """Percent, by NVML where its bindings are, or by nvidia-smi; nothing where neither is."""
    if device.type != "cuda":
        return []
    try:
        return [float(torch.cuda.utilization(device))]
    except (ImportError, RuntimeError):
        tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  what PATH has
    return [float(ended.stdout.split()[0])] if ended.returncode == 0 else []


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


def run_epochs(
    sides: Sequence[Side], cases: dict[str, Any], each: int, batch: int, epochs: int, sample: Callable[[], Sequence[float]]
) -> list[Course]:
    """`each`: rows of a case. `sample`: how busy the device is, in percent, or nothing."""
    courses = [Course(side.name) for side in sides]
    for number in range(epochs):
        for side, course in zip(sides, courses, strict=True):
            with sampled(sample) as busy:
                began = time.perf_counter()
                losses = [step() for step in side.epoch(number)]
                course.losses.append(float(sum(losses) / len(losses)))  # waits for the device
                trained = time.perf_counter()
            course.hits.append(hit_rate(side.scores(cases, batch), each))
            ended = time.perf_counter()
            course.training.append(len(losses) * batch / (trained - began))
            course.evaluation.append(len(cases["user"]) / (ended - trained))
            course.busy += busy
            course.seconds.append(ended - began)
    return courses


def hit_rate(scores: Any, each: int) -> float:
    """The first of every `each` rows is the held-out one; equal scores share the middle rank."""
    starts = np.arange(0, len(scores), each, dtype=np.int64)
    ranks = PlacedCases.of(starts, len(scores), scores.device).ranks(scores)
    return float((ranks <= TOP).double().mean())


@contextmanager
def sampled(sample: Callable[[], Sequence[float]], every: float = 0.5) -> Iterator[list[float]]:
    """Samples now and then, in a thread."""
    samples, ended = list[float](), threading.Event()

    def watch() -> None:
        while not ended.wait(every):
            if not (now := sample()):
                return
            samples.extend(now)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def protocol_rows(case: str, courses: Sequence[Course], moved: float, copies: Sequence[float]) -> Iterator[Row]:
    """The last course is the plain loop's. `moved`: bytes of embeddings a row of a step."""
    plain = courses[-1]
    target = SHARE * max(plain.hits)
    for course in courses:
        ours = course is not plain
        for metric, values, beside in (
            ("training", course.training[1:], plain.training[1:]),
            ("evaluation", course.evaluation[1:], plain.evaluation[1:]),
        ):
            ratio = {plain.name: statistics.median(values) / statistics.median(beside)} if ours else {}
            note = f"{ratio[plain.name]:.2f} of the plain loop's" if ours else ""
            yield Row(case, course.name, metric, "items/s", values, ratio, note)
        if ours:
            speeds = [moved * speed / 1e9 for speed in course.training[1:]]
            share = statistics.median(speeds) * 1e9 / statistics.median(copies)
            yield Row(case, course.name, "bytes of embeddings", "GB/s", speeds, note=f"{share:.1%} of a copy's")
        reached = next((number for number, hits in enumerate(course.hits, 1) if hits >= target), None)
        epoch = f"epoch {reached}" if reached else f"not in {len(course.hits)} epochs"
        note = f"{SHARE:.0%} of the plain loop's best in {epoch}; loss {course.losses[0]:.4f} to {course.losses[-1]:.4f}"
        yield Row(case, course.name, "best hr@10/100", "", [max(course.hits)], note=note)
        yield Row(case, course.name, "first epoch", "s", [course.seconds[0]], note="warming up, compiling")
        if course.busy:
            yield Row(case, course.name, "utilisation", "%", course.busy)


def measure_protocol(
    framework: Framework, case: str, device: Any, copies: Sequence[float], scale: float, batch: int, epochs: int, seeds: int
) -> Iterator[Row]:
    likes, options = likes_by_taste(device, scale), CASES[case]
    for seed in range(1, seeds + 1):
        ours = Ours(framework, likes, batch, seed, options)
        sides: list[Side] = [ours, Plain(likes, batch, seed, options)]
        courses = run_epochs(sides, likes.cases, 1 + AGAINST, batch, epochs, lambda: utilisation(device))
        moved = bytes_of(ours.architecture, batch) / batch
        yield from protocol_rows(case if seeds == 1 else f"{case}, seed {seed}", courses, moved, copies)
    for side in sides if not options.get("jit") else ():
        work = count_work(next(iter(side.epoch(epochs))))
        note = f"{work.waits} numbers asked of the device, {work.brought} brought there; making the batch included"
        yield Row(case, side.name, "operators", "a step", [float(work.operators)], note=note)
        yield Row(case, side.name, "written by operators", "kB a row", [work.written / batch / 1e3])


if __name__ == "__main__":
    gpu()
