"""The tritonserver of the `nvidia-pytriton` wheel: finds its parts, reports missing ones, and lays out its backends."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from shared.domain.errors import Unavailable

_OURS = Path(__file__).parent / "backend" / "model.py"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_LIBPYTHON = f"libpython{_PYTHON}.so.1.0"


@dataclass(frozen=True)
class TritonWheel:
    server: Path
    backend: Path
    stub: Path

    def lay_out(self, folder: Path) -> None:
        """Writes the backend directory: the Python backend, and backend/model.py under the name of the native ONNX Runtime backend."""
        shutil.rmtree(folder, ignore_errors=True)
        python, onnxruntime = folder / "python", folder / "onnxruntime"
        python.mkdir(parents=True)
        onnxruntime.mkdir()
        # Copies: Triton rejects links to libraries outside its backend directory.
        for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
            shutil.copy2(self.backend / name, python / name)
        (python / self.stub.name).symlink_to(self.stub)
        shutil.copy2(_OURS, onnxruntime / "model.py")

    def environment(self) -> dict[str, str]:
        """Environment of the server and its stubs. A stub embeds Python and finds packages by the first `python3` on PATH."""
        variables = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        library = _own_libpython()
        if library is not None:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(library.parent), variables.get("LD_LIBRARY_PATH", "")]))
        return variables


def find_wheel() -> TritonWheel:
    """Returns the wheel's paths; raises Unavailable, with the way to install it, if a part is missing."""
    module_spec = importlib.util.find_spec("pytriton")
    if module_spec is None or not module_spec.submodule_search_locations:
        raise Unavailable("the embedded Triton needs the wheel 'nvidia-pytriton', which is not installed: install eyas[triton]")
    root = Path(next(iter(module_spec.submodule_search_locations))) / "tritonserver"
    wheel = TritonWheel(
        root / "bin" / "tritonserver",
        root / "backends" / "python",
        root / "python_backend_stubs" / _PYTHON / "triton_python_backend_stub",
    )
    for part in (wheel.server, wheel.backend / "libtriton_python.so", wheel.backend / "triton_python_backend_utils.py", wheel.stub):
        if not part.exists():
            raise Unavailable(f"the wheel 'nvidia-pytriton' has no {part.relative_to(root)}: install eyas[triton] on Python {_PYTHON}")
    if importlib.util.find_spec("onnxruntime") is None:
        raise Unavailable("the embedded Triton runs models with 'onnxruntime', which is not installed: install eyas[triton]")
    if _own_libpython() is None and ctypes.util.find_library(f"python{_PYTHON}") is None:
        raise Unavailable(
            f"Triton's Python backend needs {_LIBPYTHON}, which is missing: install a Python {_PYTHON} with its shared library "
            f"(uv python install {_PYTHON}, or Debian's libpython{_PYTHON})"
        )
    return wheel


def _own_libpython() -> Path | None:
    """Returns this interpreter's shared library, if it has one."""
    places = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"]
    return next((path for place in places if place and (path := Path(place) / _LIBPYTHON).exists()), None)
