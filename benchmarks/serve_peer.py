"""BentoML with the same model, on first use installed into an environment of its own (var/bench/bentoml); no dependency of the project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from services.listening import bind
from tests.servers.platform_process import until

NAME = "BentoML"
_PINS = ("bentoml==1.4.*", "onnxruntime==1.20.*", "numpy==1.26.*")
_HOME = Path("var/bench/bentoml").absolute()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[list[psutil.Process], int]]:
    """Its processes, and the port where it scores."""
    python = _environment()
    with bind("BentoML", 0, 0) as probe:
        port = probe.getsockname()[1]
    command = [str(python.parent / "bentoml"), "serve", "bento_score:Ranker", "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, "EYAS_BENCH_MODEL": str(folder), "BENTOML_DO_NOT_TRACK": "true", "BENTOML_HOME": str(folder / "bentoml")}
    env.pop("PYTHONPATH", None)
    with (folder / "bentoml.log").open("w") as log:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=Path(__file__).parent / "peers", env=env, stdout=log, stderr=log
        )
    try:
        until("BentoML scores", lambda: _scores(port), 120)  # by then all of its processes are there
        own = psutil.Process(process.pid)
        yield [own, *own.children(recursive=True)], port
    finally:
        process.terminate()
        process.wait(30)


def _environment() -> Path:
    python = _HOME / "bin" / "python"
    if not python.exists():
        sys.stderr.write(f"installing {_PINS[0]} into {_HOME}\n")
        uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(_HOME)], check=True)  # noqa: S603
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *_PINS], check=True)  # noqa: S603
    return python


def _scores(port: int) -> bool:
    try:
        return httpx.post(f"http://127.0.0.1:{port}/score", json={"user": 1, "items": [1]}).status_code == 200
    except httpx.TransportError:
        return False
