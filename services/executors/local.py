"""Executor on this machine: stages are local processes; the default of the embedded platform.

Each attempt has a folder: spec.json, log.txt (all output) and, after its end, exit.json. The folder holds the state: an
attempt without exit.json and without a child process was killed with its platform, and is lost. Each attempt runs once:
a second start changes nothing. Other files of an ended attempt are deleted: what counts of them is published.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from services.executors.processes import Child, ProcessSpawner
from services.executors.text import exit_fault, exit_reason, whole_characters
from shared.contracts.families import FamilyParams, GbmParams
from shared.contracts.families.trees import TREE_MODULES
from shared.contracts.gpus import gpu_faults, stage_engine
from shared.contracts.models import Model
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid, Unavailable
from shared.domain.run import Job

log = logging.getLogger(__name__)

_ATTEMPT = re.compile(r"[a-z0-9][a-z0-9-]{0,120}")
_HANDED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "EYAS_GPU_MEMORY",
    "EYAS_LOG",
    "OMP_NUM_THREADS",
)
_QUIET = {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
DEFAULT_ENGINE = "polars"
_STATE = frozenset({"spec.json", "log.txt", "exit.json"})
CUDF = "cudf"
"""Name among the engines of the interpreter with cudf-polars, which needs an older polars."""
_LOG_PIECE = 1 << 20
_TAIL = 8192


def handed_on() -> dict[str, str]:
    """Returns the environment variables that every child gets from this process."""
    return {name: os.environ[name] for name in _HANDED_ON if name in os.environ} | _QUIET


def local_faults(engines: Mapping[str, Path], recommender: RecommenderSpec) -> dict[str, str]:
    """Returns the fields of a spec that this machine can't satisfy, each with the reason and what to do. A missing GPU is not a fault: the
    stage then runs on the CPU."""
    faults, engine = gpu_faults(recommender, None), recommender.resources.etl.engine
    if engine != DEFAULT_ENGINE and (fault := _engine_fault(engine, engines)):
        faults["resources.etl.engine"] = fault
    if fault := _library_fault(recommender.model):
        faults["model.framework" if recommender.model.params.no_steps is None else "model.params.library"] = fault
    return faults


def _library_fault(model: Model) -> str:
    """Returns why this machine cannot train the model; empty if it can. A custom family on TensorFlow may need no TensorFlow."""
    if isinstance(model.params, GbmParams):
        module, extra = TREE_MODULES[model.params.library], "trees"
    elif model.params.no_steps is None and (model.framework != "tensorflow" or isinstance(model.params, FamilyParams)):
        module = extra = model.framework
    else:
        return ""
    if find_spec(module) is not None:
        return ""
    setup = "dev" if extra in ("tensorflow", "trees") else extra
    return f"{module} is not installed here: run pip install 'eyas[{extra}]' (in a clone: make setup-{setup}), or use family: mf"


def _engine_fault(engine: str, engines: Mapping[str, Path]) -> str:
    """Returns why an engine has no environment; empty if the engine has an environment."""
    python = engines.get(engine)
    if python is not None and os.access(python, os.X_OK):
        return ""
    where = "is not set" if python is None else f"is {python}, which is not a program"
    return f"{engine}'s environment is missing: run make setup-{engine} (EYAS_{engine.upper()}_PYTHON {where})"


class LocalExecutor:
    """Implements the Executor port. `modules`: the Python module of each stage; `env`: more variables for all stages; `only`: more
    variables by stage; `engines`: the interpreters of engines with their own environment.

    A child gets an allow-listed environment, without the platform's secrets.
    """

    def __init__(
        self,
        root: Path,
        modules: Mapping[str, str],
        env: Mapping[str, str] | None = None,
        *,
        only: Mapping[str, Mapping[str, str]] | None = None,
        engines: Mapping[str, Path] | None = None,
        grace: float = 5.0,
    ) -> None:
        self._root = root
        self._modules = dict(modules)
        self._env = handed_on() | dict(env or {})
        self._only = {stage: dict(more) for stage, more in (only or {}).items()}
        self._engines = dict(engines or {})
        self._grace = grace
        self._nursery = ProcessSpawner()
        self._children: dict[str, Child] = {}
        self._unwritten: dict[str, dict[str, Any]] = {}
        """Ends of attempts whose exit.json could not be written."""
        self._lock = threading.Lock()
        self._closed = False
        for folder in self._root.glob("*/"):  # of attempts that were lost with their platform
            _tidy(folder)

    def start(self, spec: StageSpec) -> None:
        folder = self._folder(spec.attempt)
        module = self._modules.get(spec.stage)
        if module is None:
            raise Invalid(f"stage '{spec.stage}' has no module here; known stages: {', '.join(sorted(self._modules))}")
        with self._lock:
            if self._closed:
                raise Unavailable(f"{spec.attempt} was not started: the executor is closed")
            if folder.exists():
                return
            python = self._python(spec)
            try:
                folder.mkdir(parents=True)
                _write(folder / "spec.json", spec.model_dump_json(by_alias=True, indent=1))
            except OSError as error:  # without its folder the attempt can be started again
                shutil.rmtree(folder, ignore_errors=True)
                raise Unavailable(f"{spec.attempt} was not started: cannot write its folder {folder}: {error.strerror}") from None
            command = [python, "-P", "-m", module, "--spec", str((folder / "spec.json").absolute())]
            env = self._env | self._only.get(spec.stage, {})
            child = self._nursery.spawn(command, folder, env, folder / "log.txt")
            self._children[spec.attempt] = child
        child.reap(lambda code: self._ended(spec.attempt, code))

    def _python(self, spec: StageSpec) -> str:
        """Returns the interpreter of a stage: an engine may have its own environment."""
        engine = stage_engine(spec.recommender, spec.stage, spec.mode)
        if spec.stage == "etl" and spec.recommender.resources.etl.gpu and engine == DEFAULT_ENGINE and CUDF in self._engines:
            return str(self._engines[CUDF].absolute())
        if spec.stage != "etl" or engine == DEFAULT_ENGINE:
            return sys.executable
        if fault := _engine_fault(engine, self._engines):
            raise Invalid(f"resources.etl.engine: {fault}")
        return str(self._engines[engine].absolute())

    def observe(self, attempt: str) -> Job | None:
        folder = self._folder(attempt)
        with self._lock:  # `start` makes folder and child under this lock
            if attempt in self._children:
                return Job("running")
            if not folder.exists():
                return None
        try:
            end = self._unwritten.get(attempt) or json.loads((folder / "exit.json").read_text())
        except FileNotFoundError:
            return Job("lost", "the platform ended during the attempt")
        code = int(end["code"])
        if end["closed"] and code != 0:
            return Job("lost", "the platform was stopped during the attempt")
        return Job("succeeded") if code == 0 else Job("failed", _why(code, folder / "log.txt"), exit_fault(code))

    def stop(self, attempt: str) -> None:
        self._folder(attempt)
        with self._lock:
            child = self._children.get(attempt)
        if child is not None:
            child.stop(self._grace)

    def log(self, attempt: str, offset: int = 0) -> tuple[str, int]:
        try:
            with (self._folder(attempt) / "log.txt").open("rb") as stream:
                start = min(max(offset, 0), os.fstat(stream.fileno()).st_size)
                stream.seek(start)
                piece = stream.read(_LOG_PIECE)
        except FileNotFoundError:
            return "", offset
        piece = whole_characters(piece)
        return piece.decode(errors="replace"), start + len(piece)

    def close(self) -> None:
        """Stops all running attempts, which then are lost."""
        with self._lock:
            self._closed = True
            running = list(self._children.values())
        stopping = [threading.Thread(target=child.stop, args=(self._grace,)) for child in running]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self._nursery.close()

    def _ended(self, attempt: str, code: int) -> None:
        end = {"code": code, "ended": datetime.now(UTC).isoformat(), "closed": self._closed}
        try:
            _write(self._folder(attempt) / "exit.json", json.dumps(end))
        except OSError as error:
            self._unwritten[attempt] = end
            log.error("attempt: exit.json not written, a restart of the platform loses the result attempt=%s error=%s", attempt, error)
        finally:
            with self._lock:
                self._children.pop(attempt, None)
            _tidy(self._folder(attempt))

    def _folder(self, attempt: str) -> Path:
        if not _ATTEMPT.fullmatch(attempt):
            raise Invalid(f"{attempt!r} is not an attempt name: use lower-case letters, digits and dashes")
        return self._root / attempt


def _tidy(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name not in _STATE:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    """Writes the file completely or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        try:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        except OSError:
            Path(stream.name).unlink()
            raise
    Path(stream.name).replace(path)


def _why(code: int, log: Path) -> str:
    if code < 0:
        return f"killed by signal {-code}"
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _TAIL))
        return exit_reason(code, stream.read().decode(errors="replace"))
