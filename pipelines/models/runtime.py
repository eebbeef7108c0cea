"""Loads Keras on TensorFlow, torch or JAX: late, because loading takes seconds, and with a cap on GPU memory.

TensorFlow writes information lines to the process's stderr before its settings take effect. These lines are dropped while TensorFlow loads;
warnings and errors still come through.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.loaders.memory import MEBIBYTE
from shared.contracts.quantities import parse_memory
from shared.domain.errors import Conflict, Invalid

GPU_MEMORY = "EYAS_GPU_MEMORY"
"""Memory that a framework may take of each GPU, such as 8Gi."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
_NOISE = re.compile(rb"(I\d{4} .*|WARNING: All log messages before absl::InitializeLog\(\).*|To enable the following instructions:.*|)\n?")


def load_keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    load_tensorflow()
    import keras

    return keras


def load_tensorflow() -> Any:
    """Loads TensorFlow; caps its GPU memory if `GPU_MEMORY` is set and TensorFlow is not loaded yet."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    new = not _loaded()
    if new:
        with _quiet():
            import tensorflow as tf

            tf.config.list_physical_devices()
    import tensorflow as tf

    if new and os.environ.get(GPU_MEMORY):
        _cap(tf, _bytes(os.environ[GPU_MEMORY]))
    return tf


def load_torch() -> Any:
    """Loads torch, and Keras on torch.

    Numbers below the normal range become 0, as on TensorFlow and JAX: products of such numbers, which gradients of well-learned rows are,
    take five times as long. This holds in the calling thread and in threads that start later, so call it before all other work.
    """
    os.environ["KERAS_BACKEND"] = "torch"
    import torch

    torch.set_flush_denormal(True)
    _keep_freed_memory()
    if os.environ.get(GPU_MEMORY) and torch.cuda.is_available():
        limit = _bytes(os.environ[GPU_MEMORY])
        for number in range(torch.cuda.device_count()):
            total = torch.cuda.get_device_properties(number).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), number)
    import keras  # noqa: F401

    return torch


def _keep_freed_memory() -> None:
    """Lets glibc keep freed memory for the next step. By default it returns blocks of some MiB to the system, and each step waits for new
    pages."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries lack it
        mallopt(_MMAP_THRESHOLD, 32 * MEBIBYTE)
        mallopt(_TRIM_THRESHOLD, 256 * MEBIBYTE)


def load_jax() -> Any:
    """Loads JAX, and Keras on JAX. JAX reserves its share of a GPU when it first runs; the share is computed for the smallest GPU."""
    os.environ["KERAS_BACKEND"] = "jax"
    cap_jax()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _quiet():
        import jax

        jax.devices()
    import keras  # noqa: F401

    return jax


def cap_jax() -> None:
    if os.environ.get(GPU_MEMORY) and (sizes := gpu_sizes()):
        share = min(1.0, _bytes(os.environ[GPU_MEMORY]) / min(sizes))
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{share:.4f}"


def gpu_sizes() -> list[int]:
    """Returns the bytes of each GPU from the driver, because a question to JAX would reserve the memory."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  what PATH has
    return [int(line) * MEBIBYTE for line in completed.stdout.split() if line.isdigit()]


def _loaded() -> bool:
    return "tensorflow" in sys.modules


def cap_gpu_memory(limit: int) -> None:
    """Caps TensorFlow's bytes of each GPU; call before TensorFlow runs anything. Without a GPU it has no effect."""
    _cap(load_tensorflow(), limit)


def _cap(tf: Any, limit: int) -> None:
    configuration = tf.config.LogicalDeviceConfiguration(memory_limit=max(1, limit // MEBIBYTE))
    for gpu in tf.config.list_physical_devices("GPU"):
        try:
            tf.config.set_logical_device_configuration(gpu, [configuration])
        except RuntimeError as error:
            raise Conflict(f"TensorFlow already uses {gpu.name}: limit its memory before TensorFlow runs anything") from error


def _bytes(text: str) -> int:
    try:
        return parse_memory(text)
    except ValueError as error:
        raise Invalid(f"{GPU_MEMORY}: {error}") from None


@contextmanager
def _quiet() -> Iterator[None]:
    sys.stderr.flush()
    saved_stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved_stderr, 2)
            os.close(saved_stderr)
            captured.seek(0)
            for line in captured:
                if not _NOISE.fullmatch(line):
                    os.write(2, line)
