"""A small neural model of everything that there is, and batches for it. As a program, its first steps on a framework, in every way:

python -m tests.support.neural_model FRAMEWORK OUT.npz
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.inputs.batches import TrainingBatch
from pipelines.models import dcn as dcns
from pipelines.models import deepfm as deepfms
from pipelines.models import dlrm as dlrms
from pipelines.models import wide_deep as wide_deeps
from pipelines.models.mlp import architecture_of
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.losses import InBatch
from pipelines.models.neural.network import (
    Add,
    ColumnSelection,
    Dense,
    Dropout,
    Interact,
    Join,
    LayerNorm,
    Length,
    Network,
    Norm,
    Product,
    RowSum,
)
from pipelines.models.neural.plain import outputs
from pipelines.models.neural.weights import Weights, begin
from pipelines.models.tables import Table
from pipelines.models.two_tower import architecture_of as towers_of
from shared.contracts.families import DcnParams, DeepFmParams, DlrmParams, MlpParams, TwoTowerParams, WideDeepParams

ROWS, USERS, ITEMS = 64, 40, 30
NUMBERS: tuple[tuple[str, int | None], ...] = (("price", None), ("photo", 3))


def tables() -> tuple[Table, ...]:
    return (
        Table("user", USERS, 8, None),
        Table("item", ITEMS, 8, None),
        Table("genres", 7, 8, 3, "mean"),
        Table("tags", 9, 4, 4, "sum"),
        Table("year", 5, 4, None),
    )


def mlp(**params: Any) -> Architecture:
    return architecture_of(tables(), MlpParams.model_validate({"layers": (16, 8)} | params), NUMBERS)


def dlrm(**params: Any) -> Architecture:
    said = DlrmParams.model_validate({"layers": (16, 8), "bottom": (8,), "width": 8} | params)
    return dlrms.architecture_of(tuple(replace(one, width=said.width) for one in tables()), said, NUMBERS)


def wide_deep(**params: Any) -> Architecture:
    """Its year has weights alone, as a cross has."""
    said = WideDeepParams.model_validate({"layers": (16, 8)} | params)
    mixed = (replace(one, width=1 if one.column == "year" else one.width) for one in tables())
    return wide_deeps.architecture_of(tuple(mixed), said, NUMBERS)


def deepfm(**params: Any) -> Architecture:
    """Its year has weights alone, as a cross has."""
    chosen = DeepFmParams.model_validate({"layers": (16, 8), "width": 7} | params)
    mixed = (replace(table, width=1 if table.column == "year" else 8) for table in tables())
    return deepfms.architecture_of(tuple(mixed), chosen, NUMBERS)


def dcn(**params: Any) -> Architecture:
    return dcns.architecture_of(tables(), DcnParams.model_validate({"layers": (16, 8), "crosses": 2} | params), NUMBERS)


def everything(rate: float = 0.0) -> Architecture:
    """Every kind of node: an inner product beside hidden layers, as NeuMF has it."""
    network = Network(
        (
            ColumnSelection("left", ("user",), 0, 4),
            ColumnSelection("right", ("item",), 0, 4),
            Length("direction", ("left",), 0.5),
            Product("gmf", ("direction", "right")),
            RowSum("inner", ("gmf",)),
            Interact("pairs", ("user", "item", "genres"), itself=True),
            LayerNorm("level", ("photo",)),
            Join("features", ("user", "item", "genres", "tags", "year", "price", "level", "pairs")),
            Dense("hidden", ("features",), 8),
            Norm("norm", ("hidden",)),
            Dropout("dropout", ("norm",), rate),
            Dense("deep", ("dropout",), 1, "linear"),
            Add("score", ("inner", "deep")),
        )
    )
    return Architecture("everything", tables(), NUMBERS, network)


def towers(**params: Any) -> Architecture:
    names = ("user", "tags", "price"), ("item", "genres", "year", "photo")
    return towers_of(tables(), NUMBERS, names, TwoTowerParams.model_validate({"layers": (8,), "width": 4, "temperature": 0.5} | params))


def in_batch() -> InBatch:
    """Items as popular as their codes are high."""
    counts = 1 + np.arange(ITEMS, dtype=np.float64)
    return InBatch("user_vector", "item_vector", "item", np.log(counts / counts.sum()).astype(np.float32))


def any_weights(architecture: Architecture) -> Weights:
    """None of them zero."""
    random = np.random.default_rng(5)
    return {path: random.standard_normal(one.shape).astype(np.float32) for path, one in begin(architecture, 1).items()}


def batch(seed: int, rows: int = ROWS, users: int = USERS) -> TrainingBatch:
    random = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        one.column: random.integers(0, one.cardinality, (rows,) if one.length is None else (rows, one.length)).astype(np.int32)
        for one in tables()
    }
    columns["user"] %= users
    columns["genres"][random.random((rows, 3)) < 0.5] = 0
    columns["tags"][: rows // 2] = 0
    columns |= {"price": random.random(rows, dtype=np.float32), "photo": random.random((rows, 3), dtype=np.float32)}
    return TrainingBatch(columns, ((columns["user"] + columns["item"]) % 3 == 0).astype(np.float32))


VARIANTS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sparse": {"dense_rows": 0},
    "adagrad": {"optimizer": "adagrad"},
    "sgd": {"optimizer": "sgd"},
    "everything": {"optimizer": "sgd"},
    "dlrm": {},
    "wide_deep": {},
    "deepfm": {},
    "dcn": {},
    "decay": {"decay": 0.1},
    "decay_sgd": {"optimizer": "sgd", "decay": 0.1},
    "scheduled": {"scheduled": True, "decay": 0.1},
    "half": {"half": True},
    "float16": {"half": True, "float16": True},
    "float16_sparse": {"half": True, "float16": True, "dense_rows": 0},
    "jit": {"jit": True},
    "towers": {"optimizer": "sgd"},
    "towers_jit": {"optimizer": "sgd", "jit": True},
}
"""`everything` by plain descent: a bias before a Norm has no gradient but rounding, and Adam would take rounding for a direction."""


def main() -> None:
    from pipelines.models.neural.frameworks import load_framework

    name, out = sys.argv[1:]
    framework = load_framework(name)  # type: ignore[arg-type]
    found: dict[str, Any] = {}
    for variant, settings in VARIANTS.items():
        found |= {f"{variant}/{what}": value for what, value in _first_steps(framework, variant, settings).items()}
    if name == "jax":
        found |= _programs(framework)
    with Path(out).open("wb") as stream:
        np.savez(stream, **found)


def _first_steps(framework: Any, variant: str, settings: dict[str, Any]) -> dict[str, Any]:
    from pipelines.models.neural.step import LOGISTIC, NeuralStep, StepOptions

    made = {
        "everything": everything,
        "dlrm": dlrm,
        "wide_deep": wide_deep,
        "deepfm": deepfm,
        "dcn": dcn,
        "towers": towers,
        "towers_jit": towers,
    }
    architecture, loss = made.get(variant, mlp)(), in_batch() if variant.startswith("towers") else LOGISTIC
    step = NeuralStep(framework, architecture, begin(architecture, 7), StepOptions(learning_rate=0.02, **settings), loss)
    losses = []
    for seed in range(12):
        losses.append(float(step(batch(seed, 50 if seed == 5 else ROWS))))
        if step.how.scheduled and seed in (5, 8):
            step.scale_rate(0.1)
    weights, looked = step.weights(), batch(99).columns
    scores = {"own": step.own_logits(looked), "plain": outputs(architecture, weights, looked)[:, 0]}
    before = step.state()
    again = [float(step(batch(seed))) for seed in (20, 21)]
    step.restore(before)
    repeated = np.array([again, [float(step(batch(seed))) for seed in (20, 21)]])
    planted = {} if step.scale is None else {"planted": _planted(step)}
    return {
        "losses": np.array(losses),
        "repeated": repeated,
        **scores,
        **planted,
        **{f"weights/{path}": one for path, one in weights.items()},
    }


def _planted(step: Any) -> Any:
    """A scale that no gradient bears: by how many arrays the model moved, the scale, the steps that were skipped; then of one that it does
    bear."""
    state, (value, _, _) = step.state(), step.scale.variables
    found = []
    for scale in (2.0**100, 2.0**10):
        step.restore(state)
        value.assign(scale)
        before = step.weights()
        step(batch(30))
        after = step.weights()
        found.append((sum(int((one != after[path]).any()) for path, one in before.items()), step.scale.value, step.scale.skipped))
    return np.array(found)


def _programs(framework: Any) -> dict[str, Any]:
    """Of batches that read more and fewer rows: how many each read, how many programs there were by then, and whether tables stay where
    they are."""
    from pipelines.models.neural.step import NeuralStep, StepOptions

    big = tuple(replace(one, cardinality=20_000) if one.column == "user" else one for one in tables())
    architecture = architecture_of(big, MlpParams(layers=(8,)), NUMBERS)
    step, traced, places, outputs = NeuralStep(framework, architecture, begin(architecture, 1), StepOptions(dense_rows=0)), 0, set(), []
    forward = step._forward

    def counted(*arguments: Any) -> Any:
        nonlocal traced
        traced += 1
        return forward(*arguments)

    step._differentiated = framework.differentiated(counted, list(step._dense.values()), False)
    for seed in range(12):
        one = batch(seed, 1024 if seed == 11 else 2048)
        one.columns["user"][:] = np.random.default_rng(seed).integers(0, 20_000, len(one))
        step(one)
        places.add(step._tables[0].value.unsafe_buffer_pointer())
        outputs.append((len(np.unique(one.columns["user"])), traced))
    return {"programs": np.array(outputs), "same_memory": np.array([len(places) == 1])}


if __name__ == "__main__":
    main()
