"""The tritonserver of the `nvidia-pytriton` wheel: its environment, its parts, what is missing, and the layout of its backends.

The wheel demands numpy 1, though only its Python part, which Eyas never imports, does. So the server has an environment of its own inside
Eyas': the wheel, numpy and ONNX Runtime (environment.lock), installed by `eyas install-triton`.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from shared.domain.errors import Unavailable

ENVIRONMENT = Path(sys.prefix) / "eyas-triton"
LOCK = Path(__file__).with_name("environment.lock")
LIBRARIES = ("nvidia-pytriton", "numpy", "onnxruntime")
INSTALL = "run: eyas install-triton"
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
        variables["PATH"] = os.pathsep.join([str(ENVIRONMENT / "bin"), os.environ.get("PATH", os.defpath)])
        library = _own_libpython()
        if library is not None:
            variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(library.parent), variables.get("LD_LIBRARY_PATH", "")]))
        return variables


def find_wheel() -> TritonWheel:
    """Returns the wheel's paths; raises Unavailable, with the way to install it, if a part is missing."""
    versions, locked = installed(), _locked()
    if "nvidia-pytriton" not in versions:
        raise Unavailable(f"the embedded Triton is not installed; {INSTALL}")
    for name in LIBRARIES:
        if versions.get(name) not in locked[name]:
            raise Unavailable(f"the embedded Triton needs {name} {' or '.join(locked[name])}, has {versions.get(name, 'none')}; {INSTALL}")
    root = _packages() / "pytriton" / "tritonserver"
    wheel = TritonWheel(
        root / "bin" / "tritonserver",
        root / "backends" / "python",
        root / "python_backend_stubs" / _PYTHON / "triton_python_backend_stub",
    )
    if not wheel.stub.exists():
        stubs = ", ".join(sorted(path.name for path in wheel.stub.parents[1].glob("3.*")))
        raise Unavailable(f"the embedded Triton does not run on Python {_PYTHON}: install Eyas on one of {stubs}")
    for part in (wheel.server, wheel.backend / "libtriton_python.so", wheel.backend / "triton_python_backend_utils.py"):
        if not part.exists():
            raise Unavailable(f"the embedded Triton lacks {part.relative_to(root)}; {INSTALL}")
    if _own_libpython() is None and ctypes.util.find_library(f"python{_PYTHON}") is None:
        raise Unavailable(
            f"Triton's Python backend needs {_LIBPYTHON}, which is missing: install a Python {_PYTHON} with its shared library "
            f"(uv python install {_PYTHON}, or Debian's libpython{_PYTHON})"
        )
    return wheel


def installed() -> dict[str, str]:
    """Returns the versions of the environment's libraries by name; without those that are missing."""
    folders = [path.name.removesuffix(".dist-info").rsplit("-", 1) for path in _packages().glob("*.dist-info")]
    return {name: version for folder, version in folders if (name := folder.lower().replace("_", "-")) in LIBRARIES}


def install() -> Path:
    """Creates the environment anew from its lock and returns it; does nothing if it is complete. The installer's progress and errors
    go to stderr; raises Unavailable if it fails."""
    try:
        find_wheel()
        return ENVIRONMENT
    except Unavailable:
        pass
    building = ENVIRONMENT.with_name(f"{ENVIRONMENT.name}.new")
    shutil.rmtree(building, ignore_errors=True)
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    python = str(building / "bin" / "python")
    pip = [uv, "pip", "install", "--python", python] if uv else [sys.executable, "-m", "pip", "--python", python, "install"]
    for command in ([sys.executable, "-m", "venv", "--without-pip", str(building)], [*pip, "--no-deps", "-r", str(LOCK)]):
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:  # noqa: S603  ours
            shutil.rmtree(building, ignore_errors=True)
            raise Unavailable(f"the embedded Triton is not installed: this command failed, for the reason above: {' '.join(command)}")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    building.rename(ENVIRONMENT)
    find_wheel()
    return ENVIRONMENT


def _packages() -> Path:
    return ENVIRONMENT / "lib" / f"python{_PYTHON}" / "site-packages"


def _locked() -> dict[str, tuple[str, ...]]:
    """Returns the versions of the lock by name: a library can have one for each version of Python."""
    pairs = re.findall(r"^([\w-]+)==([\w.]+)", LOCK.read_text(), re.M)
    return {name: tuple(version for other, version in pairs if other == name) for name, _ in pairs}


def _own_libpython() -> Path | None:
    """Returns this interpreter's shared library, if it has one."""
    places = [sysconfig.get_config_var("LIBDIR"), Path(sys.base_prefix) / "lib"]
    return next((path for place in places if place and (path := Path(place) / _LIBPYTHON).exists()), None)
