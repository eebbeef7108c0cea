"""The neural families, trained by the train stage with TF32 simulated on the CPU, and what the comparison of outputs finds in each.

It compares the right weights, and then each matrix in turn 1 % wrong between framework and arrays. As a program, for one framework:

python -m tests.support.reduced_precision FRAMEWORK OUT.npz [exact]

`exact`: without the simulation.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from pipelines.models.neural.weights import Weights
from shared.contracts.stage import Files
from tests.support.refitted import Stages

WRONG = np.float32(1.01)
TRAIN = {"epochs": 4, "batch_size": 256, "learning_rate": 0.005}
LAYERS = {"layers": [64, 32], "width": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "mlp": {"params": LAYERS, "train": TRAIN},
    "wide_deep": {"params": LAYERS, "train": TRAIN},
    "dlrm": {"params": LAYERS | {"bottom": [32]}, "train": TRAIN},
    "neumf": {"params": LAYERS, "train": TRAIN},
    "two_tower": {"params": LAYERS, "train": TRAIN | {"epochs": 8}},
    "session": {"params": {"width": 32}, "train": TRAIN | {"batch_size": 16}},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "tensorflow": {"mlp in half precision, compiled": {"family": "mlp", "train": TRAIN | {"mixed_precision": "bfloat16", "compile": True}}},
    "torch": {"neumf on the device": {"family": "neumf", "train": TRAIN | {"resident": True}}},
    "jax": {},
}
"""Cases that one framework has and the others do not, by the framework's name."""


def cases(name: str) -> dict[str, dict[str, Any]]:
    families = [family for family in FAMILIES if (family, name) != ("session", "jax")]  # which that framework doesn't train
    return {family: {"family": family} | FAMILIES[family] for family in families} | SETTINGS[name]


@dataclass
class Simulation:
    """Whether products are rounded at all, and whether the framework's switch is obeyed."""

    on: bool
    obeys: bool = True


def main() -> None:
    name, out, *exact = sys.argv[1:]
    found: dict[str, Any] = {"allowed": np.array(_allowed(name))}
    with tempfile.TemporaryDirectory() as folder, tf32(name, Simulation(not exact)) as simulation:
        trainings = Trainings(name, Path(folder), simulation)
        for case, model in cases(name).items():
            found |= {f"{case}/{measure}": value for measure, value in trainings.measured(model).items()}
    with Path(out).open("wb") as stream:
        np.savez(stream, **found)


class Trainings:
    def __init__(self, name: str, folder: Path, simulation: Simulation) -> None:
        self._name, self._folder, self._simulation, self._count = name, folder, simulation, 0
        self._prepared: dict[str, tuple[Stages, Files]] = {}

    def measured(self, model: dict[str, Any]) -> dict[str, Any]:
        """`switch`: products are rounded as long as the framework's switch allows it. `ignored`: as on a GPU where it has no effect.

        Of each, with the right weights and with each wrong matrix, the largest difference, its tolerance, and whether the model would be
        published. `refused`: whether the stage fails where a matrix is wrong.
        """
        ((step, asked),) = self._trained(model)
        found = {"refused": np.array(self._refused(model, list(step.weights())))}
        method = _method(model)
        trained = getattr(step, method)()
        matrices = [path for path, array in trained.items() if array.ndim == 2]
        for mode, obeys in (("switch", True), ("ignored", False)):
            self._simulation.obeys = obeys
            step._own = None  # a program that was traced in the other mode
            for path in [None, *matrices]:
                step._plain = None
                setattr(step, method, partial(_planted, trained, path))
                with patch.object(type(step._on), "gpu", not obeys):
                    found[f"{mode}/{path or 'right'}"] = _said(step.compare(*asked))
        self._simulation.obeys = True
        return found

    def _trained(self, model: dict[str, Any], wrong: str | None = None) -> list[Any]:
        """Each step that was compared, and what of."""
        from pipelines.models.attention.learning import SequenceStep
        from pipelines.models.neural.step import NeuralStep

        steps, kind = list[Any](), NeuralStep if model["family"] != "session" else SequenceStep
        method = _method(model)
        compare, trained = kind.compare, getattr(kind, method)

        def recorded(step: Any, *asked: Any) -> Any:
            steps.append((step, asked))
            return compare(step, *asked)

        with patch.object(kind, "compare", recorded), patch.object(kind, method, lambda step: _planted(trained(step), wrong)):
            stages, etl = self._data(model)
            self._count += 1
            spec = stages.spec(model={"framework": self._name, **model}, **_features(model))
            outcome = stages.stage("train", spec, {"etl": etl}, f"r{self._count}")
        assert "weights.npz" in outcome.files
        return steps

    def _data(self, model: dict[str, Any]) -> tuple[Stages, Files]:
        """Prepared once for all that read it alike."""
        reads = "session" if model["family"] == "session" else "keys" if _features(model) else "all"
        if reads not in self._prepared:
            folder = self._folder / reads
            folder.mkdir()
            stages = Stages(folder)
            outcome = stages.stage("etl", stages.spec(model={"framework": self._name, **model}, **_features(model)), {}, "prepare")
            self._prepared[reads] = stages, {one: stages.store.put(path) for one, path in outcome.files.items()}
        return self._prepared[reads]

    def _refused(self, model: dict[str, Any], paths: list[str]) -> bool:
        wrong = next(path for path in paths if path.endswith("kernel"))
        try:
            self._trained(model, wrong)
        except RuntimeError as error:
            return "nothing is published" in str(error)
        return False


def _planted(weights: Weights, path: str | None) -> Weights:
    """Returns copies, because a step may change them in place."""
    return {name: array * WRONG if name == path else array.copy() for name, array in weights.items()}


def _method(model: dict[str, Any]) -> str:
    """Returns the method of a step that reads the arrays from the framework."""
    return "_trained" if model["family"] == "session" else "weights"


def _features(model: dict[str, Any]) -> dict[str, Any]:
    """Of rows on the device keys alone: target encoding is not computed there."""
    return {"features": [{"categorify": ["user", "item"]}]} if "resident" in model["train"] else {}


def _said(compared: Any) -> NDArray[np.float64]:
    return np.array([compared.largest, compared.tolerance, compared.largest <= compared.tolerance or compared.tf32])


def _allowed(name: str) -> list[bool]:
    """Whether TF32 is allowed before the framework computes in full precision, while it does, and after that failed."""
    from pipelines.models.neural.frameworks import load_framework

    framework = load_framework(name)  # type: ignore[arg-type]
    _, allowed = ARITHMETIC[name]()
    found = [bool(allowed())]
    with suppress(KeyError), framework.full_precision():
        found.append(bool(allowed()))
        raise KeyError
    return [*found, bool(allowed())]


@contextmanager
def tf32(name: str, simulation: Simulation) -> Iterator[Simulation]:
    """Rounds the inputs of matrix products of float32, where the framework allows TF32 (or whatever it says)."""
    from pipelines.models.neural.frameworks import load_framework

    load_framework(name)  # type: ignore[arg-type]
    from keras import ops

    products: list[tuple[Any, str]] = [(ops, "matmul")]
    if name == "torch":
        import torch

        products.append((torch.nn.functional, "linear"))
    bits, allowed = ARITHMETIC[name]()

    def rounded(values: Any) -> Any:
        """To 10 bits of the mantissa, to the nearest even; its gradient is that of the value itself."""
        whole = bits(values, "int32")
        whole = ops.bitwise_and(whole + 0xFFF + ops.bitwise_and(ops.right_shift(whole, 13), 1), -0x2000)
        return values + ops.stop_gradient(bits(whole, "float32") - values)

    def reduced(exact: Any, left: Any, right: Any, *bias: Any) -> Any:
        if simulation.on and (allowed() or not simulation.obeys) and "float32" in str(left.dtype):
            left, right = (rounded(ops.convert_to_tensor(value)) for value in (left, right))
        return exact(left, right, *bias)

    with ExitStack() as stack:
        for module, product in products:
            stack.enter_context(patch.object(module, product, partial(reduced, getattr(module, product))))
        yield simulation


def _tensorflow() -> tuple[Callable[..., Any], Callable[[], Any]]:
    import tensorflow as tf

    return tf.bitcast, tf.config.experimental.tensor_float_32_execution_enabled


def _torch() -> tuple[Callable[..., Any], Callable[[], Any]]:
    """Off by default, and on where TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is 1, as in NVIDIA's images of PyTorch."""
    import torch

    torch.set_float32_matmul_precision("high")
    return lambda values, dtype: values.view(getattr(torch, dtype)), lambda: torch.backends.cuda.matmul.allow_tf32


def _jax() -> tuple[Callable[..., Any], Callable[[], Any]]:
    import jax

    return jax.lax.bitcast_convert_type, lambda: jax.config.jax_default_matmul_precision != "highest"


ARITHMETIC = {"tensorflow": _tensorflow, "torch": _torch, "jax": _jax}
"""Gives the bits of a tensor as another type, and says whether the framework allows TF32 by now."""

if __name__ == "__main__":
    main()
