"""Small neural models, trained by several ranks as by one process. As a program, one rank of them (its surroundings tell it which):

python -m tests.support.multi_process_training OUT.npz [VARIANT ...]
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.models.neural.weights import begin_layers
from pipelines.training.group import Group
from pipelines.training.ranks import Rank
from shared.contracts.ranks import MEET, RANK, RANKS
from tests.support import neural_model

ROOT = Path(__file__).parents[2]
SIZES = (64, 64, 61, 64, 1, 33)
"""Rows of each step: some that can't be halved, and one that leaves a rank without any."""
VARIANTS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sparse": {"dense_rows": 0},
    "adagrad": {"optimizer": "adagrad"},
    "sgd": {"optimizer": "sgd"},
    "everything": {"optimizer": "sgd"},
    "dlrm": {},
    "wide_deep": {},
    "towers": {"optimizer": "sgd"},
    "penalty": {"penalty": 0.1},
    "half": {"half": True},
}
SHARDED: dict[str, tuple[Any, str]] = {
    f"{shard}_{optimizer}": (shard, optimizer)
    for shard, optimizer in [("row", "sgd"), ("row", "adagrad"), ("column", "sgd"), ("table", "sgd"), ("table", "adagrad")]
}
SHARDED |= {f"{name}_{shard}": (shard, "sgd") for name, shard in [("everything", "row"), ("wide_deep", "table"), ("towers", "column")]}
"""By how tables lie, and the optimizer. With one process they lie in it as ever."""
"""`everything` has batch norm and dropout, `towers` hold rows of a whole batch against each other."""


def by_ranks(count: int, folder: Path, variants: Sequence[str]) -> list[Mapping[str, Any]]:
    """What each rank found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    told = os.environ | {RANKS: str(count), MEET: meet, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    outs = [folder / f"{count}-{number}.npz" for number in range(count)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.multi_process_training", str(out), *variants],
            env=told | {RANK: str(number)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, out in enumerate(outs)
    ]
    said = [one.communicate(timeout=240)[0] for one in ranks]
    assert [one.returncode for one in ranks] == [0] * count, "\n".join(said)
    found = []
    for out in outs:
        with np.load(out, allow_pickle=False) as stored:
            found.append({name: stored[name] for name in stored.files})
    return found


def main() -> None:
    from pipelines.models.neural.frameworks import load_framework

    out, *variants = sys.argv[1:]
    framework = load_framework("torch")
    count, (host, _, port) = int(os.environ[RANKS]), os.environ[MEET].rpartition(":")
    group = None if count == 1 else Group(Rank(int(os.environ[RANK]), count, host, int(port), 60.0))
    if group is not None:
        group.meet()
    found: dict[str, Any] = {}
    for name in variants:
        found |= {f"{name}/{what}": value for what, value in steps(framework, name, group).items()}
    if group is not None:
        group.close()
    with Path(out).open("wb") as stream:
        np.savez(stream, **found)


def steps(framework: Any, name: str, group: Group | None) -> dict[str, Any]:
    from pipelines.models.neural.sharded_step import Apartness, ShardedStep
    from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions

    of, (shard, optimizer) = name.rpartition("_")[0], SHARDED.get(name, (None, ""))
    kind = name if shard is None else of
    made = {
        "everything": lambda: neural_model.everything(0.3),
        "dlrm": neural_model.dlrm,
        "wide_deep": neural_model.wide_deep,
        "towers": neural_model.towers,
    }
    architecture = made.get(kind, neural_model.mlp)()
    loss = neural_model.in_batch() if kind == "towers" else LOGISTIC
    first = neural_model.begin(architecture, 7 if group is None or group.leads else 8)
    how = StepOptions(learning_rate=0.02, seed=7, **(VARIANTS[name] if shard is None else {"optimizer": optimizer}))
    step = NeuralStep(framework, architecture, first, how, loss, group)
    if shard is not None and group is not None:
        drawn = optimizer == "sgd"
        first = begin_layers(architecture, 7) if drawn else first
        step = ShardedStep(framework, architecture, first, how, loss, group, Apartness(shard, not drawn, Path(sys.argv[1]).parent))
    losses = [float(step(neural_model.batch(seed, rows))) for seed, rows in enumerate(SIZES)]
    step.check_same()
    kept = step.state()
    again = [float(step(neural_model.batch(seed))) for seed in (20, 21)]
    step.restore(kept)
    repeated = np.array([again, [float(step(neural_model.batch(seed))) for seed in (20, 21)]])
    apart = {} if shard is None else {"apart": np.array(step.compare().largest)}
    return {
        "losses": np.array(losses),
        **apart,
        "repeated": repeated,
        **{f"weights/{path}": one for path, one in step.weights().items()},
    }


if __name__ == "__main__":
    main()
