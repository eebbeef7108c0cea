"""What this machine can do: matrix products a second, by framework and precision, and bytes a second to and from memory."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.loader_processes import watched

SIZE = 2_048
MEMORY = 1 << 28
SECONDS = 1.5


@dataclass(frozen=True)
class Limits:
    """By framework and precision, and of the memory."""

    products: dict[str, float]
    """Floating point operations a second, the best that was seen."""
    bandwidth: float
    """Bytes a second, read and written."""


def measured() -> Limits:
    found = [watched([sys.executable, "-m", "benchmarks.train_machine", which])[0] for which in ("numpy", "tensorflow", "torch", "jax")]
    return Limits({name: rate for one in found for name, rate in one["products"].items()}, found[0]["bandwidth"])


def main() -> None:
    which = sys.argv[1]
    left, right = (np.random.default_rng(seed).random((SIZE, SIZE), dtype=np.float32) for seed in (1, 2))
    runs: dict[str, Callable[[], object]] = {}
    more: dict[str, float] = {}
    if which == "numpy":
        runs["numpy float32"] = lambda: left @ right
        source, target = np.ones(MEMORY // 4, np.float32), np.zeros(MEMORY // 4, np.float32)
        more["bandwidth"] = 2 * MEMORY * _rate(lambda: np.copyto(target, source))
    elif which == "tensorflow":
        import tensorflow as tf

        for kind in ("float32", "bfloat16"):
            pair = [tf.cast(one, kind) for one in (left, right)]
            runs[f"tensorflow {kind}"] = lambda pair=pair: tf.matmul(*pair).numpy()  # type: ignore[misc]
    elif which == "jax":
        from jax import numpy as jnp

        two = [jnp.array(one) for one in (left, right)]
        runs["jax float32"] = lambda: jnp.matmul(*two).block_until_ready()
    else:
        import torch

        for kind in ("float32", "bfloat16"):
            two = [torch.from_numpy(one).to(getattr(torch, kind)) for one in (left, right)]
            runs[f"torch {kind}"] = lambda two=two: two[0] @ two[1]  # type: ignore[misc]
    products = {name: 2.0 * SIZE**3 * _rate(run) for name, run in runs.items()}
    sys.stdout.write(json.dumps({"products": products, **more}) + "\n")


def _rate(run: Callable[[], object]) -> float:
    """The most a second that was seen."""
    run()
    least, ends = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < ends:
        began = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - began)
    return 1 / least


if __name__ == "__main__":
    main()
