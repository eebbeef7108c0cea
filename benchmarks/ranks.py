"""Training by several processes of this machine: memory of a rank and rows a second by how many there are, with tables in each of them or
spread by TorchRec. One large table of users, a small one of items, an inner product beside a hidden layer.

python -m benchmarks.ranks [--codes 200000] [--width 32] [--batch 8192] [--steps 20] [--ranks 1 2 4]

`memory`: by how much the process of a rank has grown, from before its tables were begun to its peak, the most of all ranks. `sent`: bytes
that rank 0 gives to our collectives a step; what TorchRec exchanges isn't among them. Adagrad by rows, so each way remembers as much.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row, publish
from pipelines.inputs.batches import TrainingBatch
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.network import Add, Dense, Join, Network, Product, RowSum
from pipelines.models.neural.sharded_step import Apartness, ShardedStep
from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions
from pipelines.models.neural.weights import begin, begin_layers
from pipelines.models.tables import Table
from pipelines.training.group import Group
from pipelines.training.ranks import Rank
from shared.contracts.ranks import MEET, RANK, RANKS

ITEMS, WARM = 20_000, 3
WAYS = ("whole", "row")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranks")
    parser.add_argument("--codes", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8_192)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rank", choices=WAYS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank is not None:
        print(json.dumps(_rank(given, given.rank)))  # noqa: T201  what its parent reads
        return
    rows = []
    for count in given.ranks:
        for way in WAYS if count > 1 else WAYS[:1]:
            rows += _rows(given, count, way, _measured(given, count, way))
    publish("ranks", rows, codes=given.codes, width=given.width, batch=given.batch)


def _measured(given: argparse.Namespace, count: int, way: str) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    told = os.environ | {RANKS: str(count), MEET: meet, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    sizes = [f"--{name}={getattr(given, name)}" for name in ("codes", "width", "batch", "steps")]
    command = [sys.executable, "-m", "benchmarks.ranks", "--rank", way, *sizes]
    ranks = [subprocess.Popen(command, env=told | {RANK: str(number)}, stdout=subprocess.PIPE, text=True) for number in range(count)]  # noqa: S603
    said = [one.communicate()[0] for one in ranks]
    if any(one.returncode for one in ranks):
        sys.exit(f"{count} ranks, {way}: one of them failed")
    return [json.loads(one.splitlines()[-1]) for one in said]


def _rows(given: argparse.Namespace, count: int, way: str, found: list[dict[str, Any]]) -> list[Row]:
    case, contender = f"{given.codes:,} x {given.width}, {count} processes", f"eyas {way}"
    rates = [given.batch / one for one in found[0]["seconds"]]
    return [
        Row(case, contender, "memory", "MB", [max(one["memory"] for one in found) / 1e6]),
        Row(case, contender, "tables", "MB", [max(one["tables"] for one in found) / 1e6]),
        Row(case, contender, "rows", "rows/s", rates),
        Row(case, contender, "sent", "MB a step", [found[0]["sent"] / 1e6]),
    ]


def _rank(given: argparse.Namespace, way: str) -> dict[str, Any]:
    count, (host, _, port) = int(os.environ[RANKS]), os.environ[MEET].rpartition(":")
    framework = load_framework("torch")
    group = None if count == 1 else Group(Rank(int(os.environ[RANK]), count, host, int(port)))
    if group is not None:
        group.meet()
    if way == "row":
        import torchrec  # noqa: F401  the engine's own memory isn't the tables'
    tables = Table("user", given.codes, given.width, None), Table("item", ITEMS, given.width, None)
    network = Network(
        (
            Product("product", ("user", "item")),
            RowSum("inner", ("product",)),
            Join("both", ("user", "item")),
            Dense("hidden", ("both",), 64),
            Dense("deep", ("hidden",), 1, "linear"),
            Add("score", ("inner", "deep")),
        )
    )
    architecture, how = Architecture("bench", tables, (), network), StepOptions("adagrad", 0.01)
    before = _resident()
    if way == "row":
        assert group is not None
        apart = Apartness("row", False, Path.cwd())
        step: NeuralStep = ShardedStep(framework, architecture, begin_layers(architecture, 1), how, LOGISTIC, group, apart)
        held = step.bytes_here if isinstance(step, ShardedStep) else 0
    else:
        step = NeuralStep(framework, architecture, begin(architecture, 1), how, LOGISTIC, group)
        held = sum(one.size for one in tables)
    random, seconds, sent = np.random.default_rng(3), [], 0
    for number in range(WARM + given.steps):
        if group is not None and number == WARM:
            sent = group.sent
        users, items = (random.integers(0, one.cardinality, given.batch).astype(np.int32) for one in tables)
        batch = TrainingBatch({"user": users, "item": items}, (users % 2).astype(np.float32))
        began = time.perf_counter()
        float(step(batch))
        seconds.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    told = 0.0 if group is None else (group.sent - sent) / given.steps
    if group is not None:
        group.close()
    return {"memory": memory, "tables": held, "seconds": seconds[WARM:], "sent": told}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
