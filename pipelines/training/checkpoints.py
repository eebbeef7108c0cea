"""Checkpoints of a training, each of arrays (.npz) and a document (JSON), valid only for equal inputs.

A checkpoint of another spec, other data, other code or other libraries is ignored: its model would not be the requested model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pipelines.arrays import read_arrays, write_arrays
from pipelines.training.step import State
from shared.artifacts import FsspecLive
from shared.contracts.models import Model
from shared.contracts.progress import Progress
from shared.contracts.stage import Files, digest_of
from shared.domain.errors import EyasError
from shared.domain.stage_reuse import changed, leaves, part

STATE, BEST = "state.npz", "best.npz"
_LIBRARIES = ("numpy", "keras", "tensorflow", "tensorflow-cpu", "torch", "jax", "jaxlib", "xgboost", "xgboost-cpu")
_NO_MATTER = frozenset({"checkpoint", "target"})
"""Settings in `model.train` that do not change the trained model."""


@dataclass(frozen=True)
class LoadedCheckpoint:
    about: Mapping[str, Any]
    attempt: str
    state: dict[str, NDArray[Any]]
    best: Path | None


@dataclass(frozen=True)
class CheckpointStore:
    """Saves and finds checkpoints; `rests_on` holds digests of the training's inputs, by name."""

    live: FsspecLive
    rests_on: Mapping[str, str]
    folder: Path
    """Scratch folder."""
    log: logging.Logger

    def resting_on(self, **more: Any) -> CheckpointStore:
        return replace(self, rests_on={**self.rests_on, **{name: part(value) for name, value in more.items()}})

    def tell(self, progress: Progress) -> None:
        """Publishes the progress; a failure to publish does not stop the training."""
        try:
            self.live.tell(progress.model_dump(mode="json"))
        except (EyasError, OSError) as error:
            self.log.warning("progress: publishing failed error=%s", error)

    def keep(self, about: Mapping[str, Any], state: State, best: Path | None) -> None:
        path = write_arrays(self.folder / STATE, state)
        try:
            self.live.keep({"rests_on": dict(self.rests_on), **about}, {STATE: path} | ({} if best is None else {BEST: best}))
        except (EyasError, OSError) as error:
            self.log.warning("checkpoint: saving failed error=%s", error)
        finally:
            path.unlink()

    def newest_checkpoint(self) -> LoadedCheckpoint | None:
        """Returns the newest complete checkpoint with equal inputs, or None."""
        try:
            for checkpoint in self.live.checkpoints():
                other = changed(self.rests_on, checkpoint.about["rests_on"])
                if other:
                    self.log.info("checkpoint: ignored from_attempt=%s reason=%s", checkpoint.attempt, "; ".join(other[:3]))
                    continue
                try:
                    paths = {name: self.live.fetch(checkpoint, name, self.folder / f"found-{name}") for name in checkpoint.files}
                except EyasError as error:
                    self.log.warning("checkpoint: reading failed from_attempt=%s error=%s", checkpoint.attempt, error)
                    continue
                state = read_arrays(paths[STATE])
                paths[STATE].unlink()
                return LoadedCheckpoint(checkpoint.about, checkpoint.attempt, state, paths.get(BEST))
        except OSError as error:
            self.log.warning("checkpoints: reading failed, training starts from the beginning error=%s", error)
        return None


def rests_on(model: Model, mode: str, inputs: Mapping[str, Files]) -> dict[str, str]:
    """Returns digests of the training's inputs: the spec's model, the files, the source code and the libraries."""
    document = model.model_dump(mode="json", by_alias=True)
    document["train"] = {name: value for name, value in document["train"].items() if name not in _NO_MATTER}
    own = [model.family.partition(":")[0].partition(".")[0]] if ":" in model.family else []
    above = __name__.partition("pipelines")[0]  # "eyas." in the wheel
    code = _code(f"{above}pipelines", f"{above}shared", *own)
    parts = leaves(document, "model") | {"mode": mode, "code": code, "libraries": _libraries()}
    return parts | {f"data: {origin}": f"sha256:{digest_of(files)}" for origin, files in inputs.items()}


def _code(*packages: str) -> str:
    """Returns a digest of the packages, or of modules of a single file."""
    digest = hashlib.sha256()
    for package in packages:
        module_spec = importlib.util.find_spec(package)
        roots = [Path(root) for root in module_spec.submodule_search_locations or ()] if module_spec else []
        files = [path for root in roots for path in sorted(root.rglob("*.py"))]
        if module_spec and not roots and module_spec.origin:
            files = [Path(module_spec.origin)]
        for path in files:
            name = next((path.relative_to(root) for root in roots if path.is_relative_to(root)), Path(path.name))
            digest.update(f"{package}/{name.as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def _libraries() -> str:
    there = {distribution.metadata["Name"]: distribution.version for distribution in importlib.metadata.distributions()}
    return " ".join([platform.python_version(), *(f"{name} {there[name]}" for name in _LIBRARIES if name in there)])
