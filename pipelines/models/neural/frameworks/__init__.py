"""Frameworks that a step runs on: loads the backend that a spec names, once per process."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import get_args

from pipelines.models.neural.frameworks.protocol import Framework, Name
from shared.contracts.gpus import GPUS, LIBRARIES
from shared.domain.errors import Conflict, Invalid

NAMES: tuple[Name, ...] = get_args(Name)


def load_framework(name: Name) -> Framework:
    """Returns the framework, the same for the life of the process. Raises Invalid if a Job with GPUs would train on the CPU."""
    framework = _load(name)
    if (number := os.environ.get(GPUS)) and not framework.gpu:
        raise Invalid(
            f"resources.train.gpu: this stage requests {number}, but {LIBRARIES[name]} finds none: use an image with its GPU library, or "
            "leave gpu out"
        )
    return framework


def _load(name: Name) -> Framework:
    loaded = sys.modules.get("keras")
    if loaded is not None and loaded.backend.backend() != name:
        raise Conflict(f"Keras runs on {loaded.backend.backend()} in this process and cannot change to {name}: start another process")
    if importlib.util.find_spec(name) is None:
        raise Invalid(f"model.framework: {name} is not installed where this stage runs: install eyas[{name}], or set another framework")
    os.environ["KERAS_BACKEND"] = name
    if name == "jax":
        from pipelines.models.neural.frameworks.jax import Jax

        return Jax()
    if name == "torch":
        from pipelines.models.neural.frameworks.torch import Torch

        return Torch()
    from pipelines.models.neural.frameworks.tensorflow import TensorFlow

    return TensorFlow()
