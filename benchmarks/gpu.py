"""NeuMF at ml-20m's shape with all rows on the device that trains: items a second of training and of scoring, by precision and compiler.

    python -m benchmarks.gpu [--scale 1] [--steps 20] [--cases NAME ...]
    python -m benchmarks.gpu --protocol [--scale 1] [--epochs 30] [--seeds 1] [--cases NAME ...]

A synthetic twin: as many users, items and likes as ml-20m has, by a power law, four negatives for each, drawn on the device; 1,048,576 rows
a step; products of 64, layers 256-256-128-64, dropout 0.5. It runs on the GPU that torch sees, or on the CPU, and says on which; `--scale
0.001` makes users, items, likes and batch a thousandth, to see that it works. An item is a row, negatives among them. Beside stand the
moved bytes of embeddings a second, and what a plain copy moves on the same device in the same run.

`--protocol` trains for epochs on likes that can be learned, ranks held-out items after each, and does the same by a plain loop in torch
beside it (`gpu_protocol`).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import gpu_protocol
from benchmarks.gpu_protocol import Machine
from benchmarks.report import Row, publish
from pipelines.inputs.batches import TrainingBatch
from pipelines.models import neumf
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.step import StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from shared.contracts.families import NeumfParams

USERS, ITEMS, LIKES, BATCH, EACH = 138_493, 26_744, 20_000_263, 1_048_576, 4
PRODUCT, VECTOR, LAYERS, CANDIDATES, SEED = 64, 128, (256, 128, 64), 100, 1
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
"""Items a second of one V100, as NVIDIA's NCF example says them: not ours, and of another machine."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), help="all, if not given")
    parser.add_argument("--protocol", action="store_true", help="epochs and looks, beside a plain loop in torch")
    parser.add_argument("--epochs", type=int, default=30, help="of the protocol; the first is left out of its speeds")
    parser.add_argument("--batch", type=int, help="rows a step; if not given, the published ones, scaled")
    parser.add_argument("--seeds", type=int, default=1, help="of the protocol")
    said = parser.parse_args()
    if said.protocol and said.epochs < 2:
        parser.error("--epochs: the first epoch warms up and isn't measured: say 2 at least")
    framework = load_framework("torch")
    device = framework.table(np.zeros(1, np.float32)).device
    name, copies = device_name(device), [copied(device) for _ in range(said.runs)]
    _say(f"device: {name}; a copy moves {max(copies) / 1e9:.1f} GB/s")
    rows = [Row("the device", name, "a copy, read and written", "GB/s", [one / 1e9 for one in copies])]
    missing, batch = {}, said.batch or _of(BATCH, said.scale)
    machine = Machine(framework, device, copies, lambda: utilisation(device), bytes_of)
    for case in said.cases or CASES:
        jit = CASES[case].get("jit", False)
        if jit and (why := framework.missing_compiler(jit)):
            missing[case] = why
            _say(f"{case}: not measured: {why}")
        elif said.protocol:
            those = gpu_protocol.measured(machine, case, CASES[case], said.scale, batch, said.epochs, said.seeds)
            for row in those:
                _say(f"{case}: {row.contender}: {row.metric} {np.median(row.values):,.4g} {row.unit} {row.note}".rstrip())
            rows += those
        else:
            rows += measured(framework, case, device, said.scale, batch, said.steps, said.runs)
    if not utilisation(device):
        missing["utilisation"] = "neither NVML nor nvidia-smi tells of a GPU here"
        _say(f"utilisation: not measured: {missing['utilisation']}")
    name_of = "gpu-protocol" if said.protocol else "gpu"
    publish(name_of, rows, device=name, scale=said.scale, batch=batch, not_measured=missing, published_on_one_v100=PUBLISHED)
    for what, value in PUBLISHED.items():
        _say(f"published of one V100, not ours: {what}: {value / 1e6:.1f} million items/s")
    return 0


def measured(framework: Framework, case: str, device: Any, scale: float, batch: int, steps: int, runs: int) -> list[Row]:
    architecture = model(scale)
    step = ResidentStep(framework, architecture, begin(architecture, SEED), StepOptions(learning_rate=0.0045, seed=SEED, **CASES[case]))
    source, losses = Source(device, scale, batch), list[float]()
    losses += [float(step(source(at))) for at in range(3)]
    speeds, busy = [], []
    for run in range(runs):
        began = time.perf_counter()
        found = [step(source(3 + run * steps + at)) for at in range(steps)]
        losses += [float(one) for one in found]  # waits for the device
        speeds.append(steps * batch / (time.perf_counter() - began))
        busy += utilisation(device)
    scored = [_scored(step, scale, batch) for _ in range(runs)]
    name = f"eyas on torch, {case}"
    skipped = step.scale.skipped if step.scale is not None else 0
    note = f"loss {losses[0]:.4f} to {np.mean(losses[-4:]):.4f}, {skipped} steps skipped"
    _say(f"{case}: {max(speeds):,.0f} items/s of training, {max(scored):,.0f} of scoring; {note}")
    moved = [bytes_of(architecture, batch) * one / batch / 1e9 for one in speeds]
    rows = [
        Row("ml-20m's shape", name, "training", "items/s", speeds, note=note),
        Row("ml-20m's shape", name, "scoring", "items/s", scored),
        Row("ml-20m's shape", name, "bytes of embeddings", "GB/s", moved),
    ]
    return [*rows, *([Row("ml-20m's shape", name, "utilisation", "%", busy)] if busy else [])]


class Source:
    """Batches of an endless epoch, made on the device."""

    def __init__(self, device: Any, scale: float, batch: int) -> None:
        import torch

        from pipelines.inputs.on_device import OnDeviceRows

        users, items, likes = (_of(one, scale) for one in (USERS, ITEMS, LIKES))
        random, codes = torch.Generator(device).manual_seed(SEED), torch.arange(items, dtype=torch.int32, device=device)
        user, item = (
            (count * torch.rand(likes, generator=random, device=device, dtype=torch.float64) ** 3).int() for count in (users, items)
        )
        self._rows = OnDeviceRows({"user": user}, torch.ones(likes, device=device), item, {"item": codes}, items)
        self._batch, self._epoch, self._order = batch, -1, user
        self._steps = likes * (1 + EACH) // batch

    def __call__(self, step: int) -> TrainingBatch:
        epoch, at = divmod(step, self._steps)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._rows.order(EACH, False, True, (SEED, epoch))
        columns, labels = self._rows.batch(self._order[at * self._batch :][: self._batch], EACH, 0.0, (SEED, step))
        return TrainingBatch(columns, labels)


def model(scale: float) -> Architecture:
    user, item = (Table(name, _of(rows, scale), PRODUCT + VECTOR, None) for name, rows in (("user", USERS), ("item", ITEMS)))
    return neumf.architecture_of(user, item, NeumfParams(width=PRODUCT, layers=LAYERS, dropout=0.5))


def bytes_of(architecture: Architecture, batch: int) -> float:
    """Of a step: vectors looked up and their gradients, read and written each; table, gradient and two moments read, all but the gradient
    written."""
    looked = sum(4 * 4 * one.width * batch for one in architecture.tables)
    return looked + sum(7 * 4 * one.width * one.cardinality for one in architecture.tables)


def _scored(step: ResidentStep, scale: float, batch: int) -> float:
    """Rows a second of users with a hundred candidates each, scores brought back."""
    random = np.random.default_rng(SEED)
    users = np.repeat(np.arange(max(1, batch // CANDIDATES), dtype=np.int32) % _of(USERS, scale), CANDIDATES)
    columns = {"user": users, "item": random.integers(0, _of(ITEMS, scale), len(users), dtype=np.int32)}
    step.score(columns)
    began = time.perf_counter()
    for _ in range(5):
        step.score(columns)
    return 5 * len(users) / (time.perf_counter() - began)


def copied(device: Any) -> float:
    """Bytes a second, read and written."""
    import torch

    size = 1 << (28 if device.type == "cuda" else 26)  # beyond the caches of either
    source, target = (torch.ones(size // 4, device=device) for _ in range(2))
    wait: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    target.copy_(source)
    wait()
    began = time.perf_counter()
    for _ in range(8):
        target.copy_(source)
    wait()
    return 8 * 2 * size / (time.perf_counter() - began)


def utilisation(device: Any) -> list[float]:
    """Percent, by NVML where its bindings are, or by nvidia-smi; nothing where neither is."""
    import torch

    if device.type != "cuda":
        return []
    try:
        return [float(torch.cuda.utilization(device))]
    except (ImportError, RuntimeError):
        tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  what PATH has
    return [float(found.stdout.split()[0])] if found.returncode == 0 else []


def device_name(device: Any) -> str:
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu"


def _of(count: int, scale: float) -> int:
    return max(8, round(count * scale))


def _say(what: str) -> None:
    Console(soft_wrap=True).print(what, highlight=False)


if __name__ == "__main__":
    raise SystemExit(main())
