"""The tritonserver of the `nvidia-pytriton` wheel: its environment, its parts, what is missing, and the layout of its backends.

The wheel's Python stubs need numpy 1: with numpy 2 they read wrong strides (measured on 0.7.0). So the server has an environment of its own
inside Eyas': the wheel, numpy 1.26 and ONNX Runtime (environment.lock), installed by `eyas install-triton`. Its interpreter is the one of
Eyas, or an older one if numpy 1.26 does not exist for that.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shared.domain.errors import Unavailable

ENVIRONMENT = Path(sys.prefix) / "eyas-triton"
LOCK = Path(__file__).with_name("environment.lock")
LIBRARIES = ("nvidia-pytriton", "numpy", "onnxruntime")
INSTALL = "run: eyas install-triton"
_OURS = Path(__file__).parent / "backend" / "model.py"
_PYTHONS = ("3.12", "3.11")
"""Versions of Python that have numpy 1.26 and a stub, the newest first."""


@dataclass(frozen=True)
class TritonWheel:
    server: Path
    backend: Path
    stub: Path
    python: str
    """Version of the stub's Python."""

    def lay_out(self, folder: Path) -> Path:
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
        return folder

    def environment(self) -> dict[str, str]:
        """Environment of the server and its stubs. A stub embeds Python and finds packages by the first `python3` on PATH."""
        variables = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        variables["PATH"] = os.pathsep.join([str(ENVIRONMENT / "bin"), os.environ.get("PATH", os.defpath)])
        library = _own_libpython(self.python)
        if library is not None:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(library.parent), variables.get("LD_LIBRARY_PATH", "")]))
        return variables


def find_wheel() -> TritonWheel:
    """Returns the wheel's paths; raises Unavailable, with the way to install it, if a part is missing."""
    versions, locked = installed(), dict(re.findall(r"^([\w-]+)==([\w.]+)", LOCK.read_text(), re.M))
    if "nvidia-pytriton" not in versions:
        raise Unavailable(f"the embedded Triton is not installed; {INSTALL}")
    for name, version in locked.items():
        if versions.get(name) != version:
            raise Unavailable(f"the embedded Triton needs {name} {version}, has {versions.get(name, 'none')}; {INSTALL}")
    packages = _packages()
    python, root = packages.parent.name.removeprefix("python"), packages / "pytriton" / "tritonserver"
    wheel = TritonWheel(
        root / "bin" / "tritonserver",
        root / "backends" / "python",
        root / "python_backend_stubs" / python / "triton_python_backend_stub",
        python,
    )
    for part in (wheel.server, wheel.backend / "libtriton_python.so", wheel.backend / "triton_python_backend_utils.py", wheel.stub):
        if not part.exists():
            raise Unavailable(f"the embedded Triton lacks {part.relative_to(root)}; {INSTALL}")
    if _own_libpython(python) is None and ctypes.util.find_library(f"python{python}") is None:
        raise Unavailable(
            f"Triton's Python backend needs libpython{python}.so.1.0, which is missing: install a Python {python} with its shared library "
            f"(uv python install {python}, or Debian's libpython{python})"
        )
    return wheel


def fault() -> str:
    """Returns why the embedded Triton cannot run on this machine; empty if it can."""
    try:
        find_wheel()
    except Unavailable as error:
        return str(error)
    return ""


def installed() -> dict[str, str]:
    """Returns the versions of the environment's libraries by name; without those that are missing."""
    folders = [path.name.removesuffix(".dist-info").rsplit("-", 1) for path in _packages().glob("*.dist-info")]
    return {name: version for folder, version in folders if (name := folder.lower().replace("_", "-")) in LIBRARIES}


def install() -> Path:
    """Replaces the environment by one from its lock, and returns it; does nothing if it is complete. The installer's progress and errors
    go to stderr; raises Unavailable if it fails."""
    if not fault():
        return ENVIRONMENT
    building = ENVIRONMENT.with_name(f"{ENVIRONMENT.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    python = str(building / "bin" / "python")
    pip = [uv, "pip", "install", "--python", python] if uv else [sys.executable, "-m", "pip", "--python", python, "install"]
    for command in ([_interpreter(), "-m", "venv", "--without-pip", str(building)], [*pip, "--no-deps", "-r", str(LOCK)]):
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:  # noqa: S603  ours
            shutil.rmtree(building, ignore_errors=True)
            raise Unavailable(f"the embedded Triton is not installed: this command failed, for the reason above: {' '.join(command)}")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    building.rename(ENVIRONMENT)
    find_wheel()
    return ENVIRONMENT


def _interpreter() -> str:
    """Returns the interpreter for the environment: this one, or another of a version that has numpy 1.26."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" in _PYTHONS:
        return sys.executable
    for version in _PYTHONS:
        path = shutil.which(f"python{version}")
        if path and subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode == 0:  # noqa: S603  of PATH
            return path
    raise Unavailable(
        f"Triton's Python backend needs Python {' or '.join(_PYTHONS)} beside this Python {sys.version.split()[0]}, because its stubs need "
        f"numpy 1.26: install python{_PYTHONS[-1]} and python{_PYTHONS[-1]}-venv, then {INSTALL}"
    )


def _packages() -> Path:
    return next(ENVIRONMENT.glob("lib/python3.*/site-packages"), ENVIRONMENT)


def _own_libpython(python: str) -> Path | None:
    """Returns the shared library beside the environment's interpreter, if it has one."""
    base = (ENVIRONMENT / "bin" / "python").resolve().parents[1]
    return next(base.glob(f"lib/libpython{python}.so.1.0"), None)
