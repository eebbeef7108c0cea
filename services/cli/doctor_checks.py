"""Checks of this machine that start no part of the platform; each gives findings."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

GIB = 1 << 30
_PIPELINES = ("onnx", "onnxruntime", "polars", "pyarrow", "scipy")
_PYTHONS = ((3, 11), (3, 13))
_PORTS = (("API", 8080), ("metrics", 9090))


@dataclass(frozen=True)
class CheckFinding:
    part: str
    good: bool
    detail: str
    mend: str = ""
    needed: bool = True
    """False if the platform runs without this part."""


def examine(home: Path) -> Sequence[CheckFinding]:
    return (
        python(),
        memory(),
        cores(),
        *folder(home),
        pipelines(),
        framework("TensorFlow", "tensorflow", "trains the neural families"),
        framework("XGBoost", "xgboost", "trains the family gbm", "trees"),
        framework("PyTorch", "torch", "lets the loader give batches to PyTorch"),
        framework("JAX", "jax", "lets models train with JAX (model.framework: jax)"),
        triton(),
        shared_memory(),
        *(port(part, number) for part, number in _PORTS),
        gpu(),
        tool("make", "install your system's package make, or use `eyas` without make"),
        tool("uv", "pip install uv: it resolves dependencies in seconds, pip in many minutes"),
    )


def python() -> CheckFinding:
    running = ".".join(map(str, sys.version_info[:3]))
    oldest, newest = (".".join(map(str, version)) for version in _PYTHONS)
    return CheckFinding("Python", _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1], running, f"use a Python from {oldest} to {newest}")


def memory() -> CheckFinding:
    import psutil

    total, free = psutil.virtual_memory().total, psutil.virtual_memory().available
    return CheckFinding(
        "memory", free >= 2 * GIB, f"{_size(free)} free of {_size(total)}", "2 GiB must be free: a training and Triton run at the same time"
    )


def cores() -> CheckFinding:
    count = len(os.sched_getaffinity(0))
    return CheckFinding("cores", count >= 2, str(count), "with one core, a training slows the answers", needed=False)


def folder(home: Path) -> Sequence[CheckFinding]:
    """Checks the nearest existing parent folder, so that nothing is created."""
    place = home.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    free = shutil.disk_usage(place).free
    return (
        CheckFinding(
            "home", writable, f"{home} ({'writable' if writable else 'not writable'})", "set EYAS_HOME to a folder that you may write to"
        ),
        CheckFinding("disk", free >= 2 * GIB, f"{_size(free)} free in {place}", "2 GiB must be free, or set EYAS_HOME to a larger disk"),
    )


def pipelines() -> CheckFinding:
    absent = [name for name in _PIPELINES if find_spec(name) is None]
    detail = f"lacks {', '.join(absent)}" if absent else "polars, ONNX"
    return CheckFinding("training", not absent, detail, "pip install 'eyas[pipelines]'")


def framework(part: str, name: str, use: str, extra: str = "") -> CheckFinding:
    mend = f"pip install 'eyas[{extra or name}]': {use}"
    if find_spec(name) is None:
        return CheckFinding(part, False, "not installed", mend, needed=False)
    try:
        return CheckFinding(part, True, version(name), mend, needed=False)
    except PackageNotFoundError:  # a local build without package metadata
        return CheckFinding(part, True, "unknown version", mend, needed=False)


def triton() -> CheckFinding:
    from services.wiring.tools import triton_fault

    fault, _, mend = triton_fault().partition("; run: ")
    return CheckFinding("Triton", not fault, fault or "tritonserver, ONNX Runtime", mend or "eyas install-triton")


def shared_memory() -> CheckFinding:
    place = Path("/dev/shm")  # noqa: S108 - where Triton and its models meet
    mend = "Triton's Python backend needs /dev/shm, writable, with 64 MiB free (docker run --shm-size=1g)"
    if not place.is_dir() or not os.access(place, os.W_OK):
        return CheckFinding("shared memory", False, f"{place} is not writable", mend)
    free = shutil.disk_usage(place).free
    return CheckFinding("shared memory", free >= 64 << 20, f"{_size(free)} free in {place}", mend)


def port(part: str, number: int) -> CheckFinding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            mend = "another port will be used; to choose one: eyas up --help"
            return CheckFinding(f"port of the {part}", False, f"{number} is in use", mend, needed=False)
    return CheckFinding(f"port of the {part}", True, f"{number} is free")


def gpu() -> CheckFinding:
    command = shutil.which("nvidia-smi")
    mend = "not needed here: the embedded platform trains and serves on the CPU"
    if command is None:
        return CheckFinding("GPU", False, "none (no nvidia-smi)", mend, needed=False)
    try:
        output = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=10, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return CheckFinding("GPU", False, "nvidia-smi does not answer", mend, needed=False)
    names = [line.split(":", 1)[1].split("(")[0].strip() for line in output.splitlines() if ":" in line]
    return CheckFinding("GPU", bool(names), ", ".join(names) or "none", mend, needed=False)


def tool(name: str, mend: str) -> CheckFinding:
    beside = Path(sys.executable).parent / name
    place = shutil.which(name) or (str(beside) if beside.exists() else None)
    return CheckFinding(name, place is not None, place or "not found", mend, needed=False)


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
