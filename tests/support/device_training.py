"""The first steps of a small neural model on torch, by batches of the host and by batches that lie on the device:

python -m tests.support.device_training OUT.npz VARIANT ...

and what such steps ask of a device, and a training by them: the parts by name in place of variants.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_counts import count_work
from pipelines.inputs.batches import TrainingBatch
from pipelines.models.neural.frameworks import load_framework
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.step import NeuralStep, StepOptions
from pipelines.models.neural.weights import begin
from tests.support import neural_model

MADE = {"everything": neural_model.everything, "dlrm": neural_model.dlrm, "wide_deep": neural_model.wide_deep}


def _there(batch: TrainingBatch) -> TrainingBatch:
    import torch

    return TrainingBatch({name: torch.from_numpy(column) for name, column in batch.columns.items()}, torch.from_numpy(batch.labels))  # type: ignore[misc, arg-type]


def _batch(seed: int) -> TrainingBatch:
    return neural_model.batch(seed, users=neural_model.USERS // (1 + seed % 2))


def _first_steps(framework: Any, variant: str) -> dict[str, Any]:
    architecture, found = MADE.get(variant, neural_model.mlp)(), dict[str, Any]()
    for which, whole in (("host", 64), ("whole", 64), ("distinct", 0)):
        kind = NeuralStep if which == "host" else ResidentStep
        step = kind(
            framework,
            architecture,
            begin(architecture, 7),
            StepOptions(learning_rate=0.02, dense_rows=whole, **neural_model.VARIANTS[variant]),
        )
        give = (lambda one: one) if which == "host" else _there
        losses = [float(step(give(_batch(seed)))) for seed in range(6)]
        before = step.state()
        losses.append(float(step(give(_batch(7)))))
        after = step.state()
        found |= {f"{variant}/{which}/losses": np.array(losses), f"{variant}/{which}/apart": np.array(step.compare().largest)}
        found |= {f"{variant}/{which}/state/{name}": one for name, one in after.items()}
        unread = [np.abs(after[name] - before[name])[neural_model.USERS // 2 :].max() for name in before if "table_user" in name]
        looked = neural_model.batch(50).columns
        found |= {f"{variant}/{which}/unread": np.array(unread), f"{variant}/{which}/score": step.score(looked)}
        found[f"{variant}/{which}/plain"] = NeuralStep.score(step, looked)
    return found


def _neumf(dropout: float = 0.5) -> Any:
    from pipelines.models.neumf import architecture_of
    from pipelines.models.tables import Table
    from shared.contracts.families import NeumfParams

    return architecture_of(*(Table(name, 40, 12, None) for name in ("user", "item")), NeumfParams(width=4, layers=(8, 4), dropout=dropout))


def _pairs(seed: int) -> TrainingBatch:
    batch = neural_model.batch(seed)
    return _there(TrainingBatch({name: batch.columns[name] % 30 for name in ("user", "item")}, batch.labels))


def _step(framework: Any, dropout: float = 0.5, **how: Any) -> ResidentStep:
    architecture = _neumf(dropout)
    return ResidentStep(framework, architecture, begin(architecture, 1), StepOptions(learning_rate=0.02, **how))


def _asked(framework: Any) -> dict[str, Any]:
    """Of a step of a model without lists: how often it waits for a number of the device's, and how often it brings one there."""
    found, float16 = {}, {"half": True, "float16": True}
    ways = {
        "whole": {},
        "adagrad": {"optimizer": "adagrad"},
        "sgd": {"optimizer": "sgd"},
        "dynamic": float16,
        "fixed": {**float16, "scale": 8.0},
    }
    for which, how in {**ways, "distinct": {"dense_rows": 0}}.items():
        step, one = _step(framework, **how), _pairs(1)
        step(one)
        counted = count_work(lambda step=step, one=one: step(one))  # type: ignore[misc]
        found[f"asked/{which}"] = np.array([counted.waits, counted.brought])
    return found


def _resumed(framework: Any) -> dict[str, Any]:
    """Weights after six steps with dropout, after three and three of another step that goes on from there, and after three twice."""
    whole, first, other = (_step(framework) for _ in range(3))
    for at in range(6):
        whole(_pairs(at))
    for at in range(3):
        first(_pairs(at))
    other(_pairs(9))
    other.restore(first.state())
    for at in range(3, 6):
        other(_pairs(at))
    weights = [np.concatenate([one.ravel() for one in step.weights().values()]) for step in (whole, other, first)]
    return {"resumed": np.stack(weights)}


def _played_graphs(framework: Any) -> dict[str, Any]:
    """Steps whose network is compiled as a CUDA graph is replayed: what it gave before is overwritten. And how it was asked for."""
    import torch

    modes: list[str] = []

    def played(function: Any, mode: str = "default", dynamic: bool | None = None) -> Any:
        modes.append(f"{mode} {dynamic}")
        if mode != "reduce-overhead":
            return function
        before: list[Any] = []

        def run(*arguments: Any) -> Any:
            with torch.no_grad():
                for one in before:
                    one.fill_(torch.nan)
            loss, more = function(*arguments)
            before[:] = [loss, *more.values()]
            return loss, more

        return run

    compiled, torch.compile = torch.compile, played
    steps = [_step(framework, 0.0), _step(framework, 0.0, jit="graphs")]
    losses = [[step(_pairs(at)) for at in range(5)] for step in steps]
    torch.compile = compiled
    found = {"graphs/losses": np.array([step.read(one) for step, one in zip(steps, losses, strict=True)])}
    found |= {f"graphs/{which}": _flat(step) for which, step in zip(("eager", "played"), steps, strict=True)}
    return found | {"graphs/modes": np.array(modes), "graphs/missing": np.array(framework.missing_compiler("graphs") or "")}


def _compiled(framework: Any) -> dict[str, Any]:
    """By torch.compile itself, where there is no CUDA to make graphs of; and how often a compiler stops in a network with dropout."""
    import torch

    eager, compiled = _step(framework, 0.0), _step(framework, 0.0, jit="graphs")
    for at in range(3):
        eager(_pairs(at))
        compiled(_pairs(at))
    breaks, batch = list[int](), _pairs(1)
    for dropout in (0.5, 0.0):
        step = _step(framework, dropout, jit=True)
        readings, numbers = step._inputs(batch.columns)
        blocks, shares = step._looked_up(step._tables, readings)
        breaks.append(torch._dynamo.explain(step._forward)(blocks, shares, numbers, batch.labels).graph_break_count)
    return {"compiled/eager": _flat(eager), "compiled/graphs": _flat(compiled), "compiled/breaks": np.array(breaks)}


def _flat(step: Any) -> Any:
    return np.concatenate([one.ravel() for one in step.weights().values()])


def _trained() -> dict[str, Any]:
    """What users like among the first ten of a `neumf` that was trained there, and of one that was trained by batches of the host. Of the
    first: how often its training waited for the device, the steps it took, and each look there beside the host's own."""
    from pipelines.models.families import FAMILIES
    from pipelines.training import trainer
    from shared.contracts.models import Model
    from shared.domain.errors import Invalid
    from tests.support.taste_data import USERS, pairs, recall, task

    found, looks, reads, kinds = dict[str, Any](), list[list[dict[str, float]]](), list[int](), list[str]()
    looked_there, read = trainer.looked_there, ResidentStep.read

    def both(look: Any, step: Any, device: Any) -> Any:
        there = looked_there(look, step, device)
        kinds.extend((type(there).__name__, type(there.ranking).__name__))

        class Both:
            rows = look.rows

            def __call__(self) -> dict[str, float]:
                looks.append([look(), there()])
                return looks[-1][1]

        return Both()

    def counted(step: ResidentStep, losses: Any) -> list[float]:
        reads.append(len(losses))
        return read(step, losses)

    trainer.looked_there, ResidentStep.read = both, counted  # type: ignore[assignment, method-assign]
    for which in (True, False):
        stop = {"metric": "hr@10/99", "patience": 50}
        said = {"epochs": 12, "batch_size": 256, "resident": which, "learning_rate": 0.01, "validation": 0.1, "early_stop": stop}
        params = {"width": 8, "layers": [8, 4], "verified": True, "pretrain": False}
        model: dict[str, Any] = {"family": "neumf", "framework": "torch", "params": params, "train": said}
        with tempfile.TemporaryDirectory() as folder:
            given = replace(task(Path(folder) / "it", pairs(), "neumf"), model=Model.model_validate(model))
            fitted = FAMILIES["neumf"].train(given)
            if which:
                graphs = Model.model_validate(model | {"train": said | {"compile": "graphs"}})
                try:
                    FAMILIES["neumf"].train(replace(given, model=graphs))
                except Invalid as error:
                    found["graphs/refused"] = np.array(str(error))
        scores = fitted.model.every(np.arange(USERS, dtype=np.int32) + 2)[:, 2:]  # type: ignore[attr-defined]
        found[f"trained/{which}"] = np.array([recall(scores, pairs()), fitted.metrics["train.epochs"]])
    names = sorted(looks[0][0])
    found["looks"] = np.array([[[one[name] for name in names] for one in pair] for pair in looks])
    return found | {"looks/kinds": np.array(kinds), "reads": np.array(reads)}


def main() -> None:
    framework = load_framework("torch")
    found: dict[str, Any] = {}
    for part in sys.argv[2:]:
        found |= PARTS[part](framework) if part in PARTS else _first_steps(framework, part)
    with Path(sys.argv[1]).open("wb") as stream:
        np.savez(stream, **found)


PARTS = {"asked": _asked, "resumed": _resumed, "graphs": _played_graphs, "compiled": _compiled, "trained": lambda framework: _trained()}


if __name__ == "__main__":
    main()
