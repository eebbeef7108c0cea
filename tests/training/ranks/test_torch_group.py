"""Two processes that train together, on gloo: each takes its own rows, and both take as many steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tensor_rows import write
from tests.support.torch_available import torch as installed

installed()

ROWS = 1001
ROOT = Path(__file__).parents[3]
MEMBER = """
import json, os, sys
import torch
import torch.distributed as group
from pipelines.loaders.loader import open_loader
from pipelines.loaders.plan import Shard
from pipelines.training.torch_epoch import TorchEpoch, of_all_ranks

path, meeting, rank, resident = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
group.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
batches = open_loader(path, batch_size=64, seed=5, threads=1).as_torch(resident=resident)
epochs = []
for epoch in range(2):
    seen = []
    for columns, label in batches:
        model(columns["weight"][:, None]).mean().backward()  # waits for the other one: a step too few would hang here
        seen.append(columns["id"].tolist())
    epochs.append(seen)
explicit = sum(len(label) for _, label in open_loader(path, batch_size=64, shard=Shard(1, 4)).as_torch())
together = of_all_ranks(TorchEpoch(rows=100 + 300 * rank, steps=4, seconds=2.0 - rank, waited=0.5 + rank, loss=1.0 + rank))
print(json.dumps({"epochs": epochs, "explicit": explicit, "together": vars(together)}))
group.barrier()
group.destroy_process_group()
# DistributedDataParallel keeps the group, and with it gloo's threads, beyond its destruction: a thread that frees a tensor
# while the interpreter ends aborts the process. So this process ends without ending the interpreter.
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.requirement("P-01", "P-03", "T-03")
@pytest.mark.parametrize("resident", [None, 0.9])
def test_two_processes_see_every_row_once_in_equal_steps(tmp_path: Path, resident: float | None) -> None:
    path = write(tmp_path, ROWS)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(path), str(tmp_path / "meeting"), str(rank), json.dumps(resident)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    told = [json.loads(one.communicate(timeout=120)[0].splitlines()[-1]) for one in members]
    assert [one.returncode for one in members] == [0, 0]
    for epoch in range(2):
        mine, other = (one["epochs"][epoch] for one in told)
        assert len(mine) == len(other)
        assert sorted(row for batch in mine + other for row in batch) == list(range(ROWS))
    assert told[0]["epochs"][0] != told[0]["epochs"][1]
    assert [one["together"] for one in told] == [{"rows": 500, "steps": 4, "seconds": 2.0, "waited": 1.5, "loss": 1.8}] * 2
    assert {one["explicit"] for one in told} == {ROWS * 2 // 4 - ROWS // 4}
