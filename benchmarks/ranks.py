"""Training by several processes of this machine: memory of a rank and rows a second by the number of ranks, with tables in each of them or
spread by TorchRec. One large table of users, a small one of items, an inner product beside a hidden layer.

python -m benchmarks.ranks [--codes 200000] [--width 32] [--batch 8192] [--steps 20] [--ranks 1 2 4]

`memory`: growth of a rank's process from before its tables were begun to its peak, the most of all ranks. `sent`: bytes that rank 0 gives
to our collectives a step, without what TorchRec exchanges. Adagrad by rows, so each way has as much state.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import torch

from benchmarks.harness import HIDDEN, Fields, Outcome, Row, benchmark, seconds_of
from benchmarks.tables import answer
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
COLD = "row, cold rows in host memory"
"""Needs a GPU for each rank."""


@benchmark("ranks")
def ranks(
    codes: int = 200_000,
    width: int = 32,
    batch: int = 8_192,
    steps: int = 20,
    ranks: list[int] = [1, 2, 4],  # noqa: B006  read only
    rank: Annotated[str, HIDDEN] = "",
) -> Iterator[Outcome]:
    if rank:
        answer(train_rank(rank, codes, width, batch, steps))
    yield Fields(codes=codes, width=width, batch=batch)
    sizes = [f"--{name}={value}" for name, value in (("codes", codes), ("width", width), ("batch", batch), ("steps", steps))]
    for count in ranks:
        for way in (*WAYS, *([COLD] if torch.cuda.device_count() >= count else [])) if count > 1 else WAYS[:1]:
            documents = train_ranks(count, way, sizes)
            for metric, unit, values in (
                ("memory", "MB", [max(each["memory"] for each in documents) / 1e6]),
                ("tables", "MB", [max(each["tables"] for each in documents) / 1e6]),
                ("rows", "rows/s", [batch / seconds for seconds in documents[0]["seconds"]]),
                ("sent", "MB a step", [documents[0]["sent"] / 1e6]),
            ):
                yield Row(f"{codes:,} x {width}, {count} processes", f"eyas {way}", metric, unit, values)


def train_ranks(count: int, way: str, sizes: list[str]) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    variables = os.environ | {RANKS: str(count), MEET: meeting, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.ranks", "--rank", way, *sizes]
    processes = [subprocess.Popen(command, env=variables | {RANK: str(rank)}, stdout=subprocess.PIPE, text=True) for rank in range(count)]  # noqa: S603
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"{count} ranks, {way}: a rank failed")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def train_rank(way: str, codes: int, width: int, size: int, steps: int) -> dict[str, Any]:
    """One rank, in this process."""
    count, (host, _, port) = int(os.environ[RANKS]), os.environ[MEET].rpartition(":")
    framework = load_framework("torch")
    group = None if count == 1 else Group(Rank(int(os.environ[RANK]), count, host, int(port)))
    if group is not None:
        group.meet()
    if way in ("row", COLD):
        import torchrec  # noqa: F401  the engine's own memory is not the tables'
    tables = Table("user", codes, width, None), Table("item", ITEMS, width, None)
    nodes = (
        Product("product", ("user", "item")),
        RowSum("inner", ("product",)),
        Join("both", ("user", "item")),
        Dense("hidden", ("both",), 64),
        Dense("deep", ("hidden",), 1, "linear"),
        Add("score", ("inner", "deep")),
    )
    architecture, options = Architecture("bench", tables, (), Network(nodes)), StepOptions("adagrad", 0.01)
    before = psutil.Process().memory_info().rss
    if way in ("row", COLD):
        assert group is not None
        apart = Apartness("row", False, Path.cwd(), "host" if way == COLD else None)
        step: NeuralStep = ShardedStep(framework, architecture, begin_layers(architecture, 1), options, LOGISTIC, group, apart)
        table_bytes = step.bytes_here if isinstance(step, ShardedStep) else 0
    else:
        step = NeuralStep(framework, architecture, begin(architecture, 1), options, LOGISTIC, group)
        table_bytes = sum(table.size for table in tables)
    random, seconds, sent = np.random.default_rng(3), list[float](), 0
    for number in range(WARM + steps):
        if group is not None and number == WARM:
            sent = group.sent
        users, items = (random.integers(0, table.cardinality, size).astype(np.int32) for table in tables)
        batch = TrainingBatch({"user": users, "item": items}, (users % 2).astype(np.float32))
        seconds += seconds_of(lambda batch=batch: float(step(batch)), 1)  # type: ignore[misc]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    sent_a_step = 0.0 if group is None else (group.sent - sent) / steps
    if group is not None:
        group.close()
    return {"memory": memory, "tables": table_bytes, "seconds": seconds[WARM:], "sent": sent_a_step}


if __name__ == "__main__":
    ranks()
