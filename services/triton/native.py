"""NVIDIA's own tritonserver, as in its image: with native backends (onnxruntime, FIL), which compute on GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.triton.wheel import TritonWheel, find_wheel
from shared.contracts.gpus import GPUS
from shared.domain.errors import Unavailable

SERVER = "EYAS_TRITON_SERVER"
"""Environment variable with the folder of a tritonserver, such as /opt/tritonserver; without it, the wheel's server runs."""
_BACKENDS = ("onnxruntime", "fil")
_PASSED = ("HOME", "LANG", "TZ", "TMPDIR", "PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class NativeTriton:
    root: Path

    @property
    def server(self) -> Path:
        return self.root / "bin" / "tritonserver"

    def lay_out(self, folder: Path) -> Path:
        """Returns the server's own backend directory."""
        return self.root / "backends"

    def environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in _PASSED if name in os.environ}


def find_server() -> NativeTriton | TritonWheel:
    """Returns the tritonserver of this machine; raises Unavailable if a part is missing."""
    if SERVER not in os.environ:
        return find_wheel()
    native = NativeTriton(Path(os.environ[SERVER]))
    for part in (native.server, *(native.root / "backends" / name for name in _BACKENDS)):
        if not part.exists():
            raise Unavailable(f"{SERVER}: {part} does not exist; use NVIDIA's image of the Triton Inference Server with all backends")
    return native


def serves_on_gpus(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the tritonserver of this machine has GPUs."""
    return SERVER in environment and GPUS in environment
