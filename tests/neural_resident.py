"""The first steps of a small neural model on torch, by batches of the host and by batches that lie on the device:

python -m tests.neural_resident OUT.npz VARIANT ...
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.inputs.batches import Batch
from pipelines.models.neural import resident
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.step import How, NeuralStep
from pipelines.models.neural.weights import begin
from tests import neural

MADE = {"everything": neural.everything, "dlrm": neural.dlrm, "wide_deep": neural.wide_deep}


def _there(batch: Batch) -> Batch:
    import torch

    return Batch({name: torch.from_numpy(one) for name, one in batch.columns.items()}, torch.from_numpy(batch.labels))  # type: ignore[misc, arg-type]


def _batch(seed: int) -> Batch:
    return neural.batch(seed, users=neural.USERS // (1 + seed % 2))


def _first_steps(framework: Any, variant: str) -> dict[str, Any]:
    architecture, found = MADE.get(variant, neural.mlp)(), dict[str, Any]()
    for which, whole in (("host", 0), ("whole", 1000), ("distinct", 0)):
        resident.WHOLE = whole
        kind = NeuralStep if which == "host" else ResidentStep
        step = kind(framework, architecture, begin(architecture, 7), How(learning_rate=0.02, **neural.VARIANTS[variant]))
        give = (lambda one: one) if which == "host" else _there
        losses = [float(step(give(_batch(seed)))) for seed in range(6)]
        before = step.state()
        losses.append(float(step(give(_batch(7)))))
        after = step.state()
        found |= {f"{variant}/{which}/losses": np.array(losses), f"{variant}/{which}/apart": np.array(step.apart())}
        found |= {f"{variant}/{which}/state/{name}": one for name, one in after.items()}
        unread = [np.abs(after[name] - before[name])[neural.USERS // 2 :].max() for name in before if "table_user" in name]
        looked = neural.batch(50).columns
        found |= {f"{variant}/{which}/unread": np.array(unread), f"{variant}/{which}/score": step.score(looked)}
        found[f"{variant}/{which}/plain"] = NeuralStep.score(step, looked)
    return found


def _asked(framework: Any) -> dict[str, Any]:
    """How often a step of a model without lists asks for an item, for what is not zero, and for distinct rows."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from pipelines.models.neumf import architecture_of
    from pipelines.models.tables import Table
    from shared.contracts.families import NeumfParams

    class Counted(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.counts = [0, 0, 0]

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(function)
            for at, one in enumerate(("_local_scalar_dense", "nonzero", "unique")):
                self.counts[at] += one in name
            return function(*args, **kwargs or {})

    found = {}
    for which, whole in (("whole", 1000), ("distinct", 0)):
        resident.WHOLE = whole
        params = NeumfParams(width=4, layers=(8,))
        tables = [Table(name, 40, 8, None) for name in ("user", "item")]
        architecture = architecture_of(*tables, params)
        step = ResidentStep(framework, architecture, begin(architecture, 1), How())
        batch = neural.batch(1)
        one = _there(Batch({name: batch.columns[name] % 30 for name in ("user", "item")}, batch.labels))
        step(one)
        with Counted() as counted:
            step(one)
        found[f"asked/{which}"] = np.array(counted.counts)
    return found


def _trained() -> dict[str, Any]:
    """What users like among the first ten of a `neumf` that was trained there, and of one that was trained by batches of the host."""
    from pipelines.models.families import FAMILIES
    from shared.contracts.models import Model
    from tests.liking import USERS, pairs, recall, task

    found = {}
    for which in (True, False):
        said = {"epochs": 12, "batch_size": 256, "resident": which, "learning_rate": 0.01, "validation": 0.1}
        params = {"width": 8, "layers": [8, 4], "verified": True, "pretrain": False}
        model = {"family": "neumf", "framework": "torch", "params": params, "train": said}
        with tempfile.TemporaryDirectory() as folder:
            given = replace(task(Path(folder) / "it", pairs(), "neumf"), model=Model.model_validate(model))
            fitted = FAMILIES["neumf"].train(given)
        scores = fitted.model.every(np.arange(USERS, dtype=np.int32) + 2)[:, 2:]  # type: ignore[attr-defined]
        found[f"trained/{which}"] = np.array([recall(scores, pairs()), fitted.metrics["train.epochs"]])
    return found


def main() -> None:
    framework = load_framework("torch")
    found = _asked(framework) | _trained()
    for variant in sys.argv[2:]:
        found |= _first_steps(framework, variant)
    with Path(sys.argv[1]).open("wb") as stream:
        np.savez(stream, **found)


if __name__ == "__main__":
    main()
