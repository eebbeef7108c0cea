"""The model repository on disk, written so that Triton never reads a partial state.

    models/eyas-{recommender}_{shape}/config.pbtxt
    models/eyas-{recommender}_{shape}/{version}/model.onnx, weights.bin (of a large unit), signature.json

On a Triton with a GPU, for a unit in steps (`serve.device: gpu`):

    models/eyas-{recommender}_{shape}-{version}/config.pbtxt, {version}/, the ensemble with all files
    models/eyas-{recommender}_{shape}-{version}.{step}/config.pbtxt, {version}/model.onnx or checkpoint.tl, weights.bin

Versions with equal signatures share one Triton model; `shape` is the signature's digest. A Triton model has one configuration, so a version
with other inputs gets a model of its own, and both serve during the canary. The files are those that the signature names; a graph with
weights in any other file is rejected. A version folder is fetched elsewhere and moved in when complete; afterwards it never changes (a new
time stamp makes Triton reload it). Triton ignores folders that config.pbtxt does not list.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.triton.server_process import ServerProcess
from shared.contracts.stage import File
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.domain.naming import NAME
from shared.ports import ArtifactStore, ServedUnit
from shared.serving.config import server_configs, step_model
from shared.serving.external import refuse_others
from shared.serving.signature import Signature

SIGNATURE = "signature.json"
PREFIX = "eyas-"
_TRIAL = "eyas_trial-"
_CONFIGURED = {"file", "backend", "features", "instances", "warm_up", "steps"}


@dataclass(frozen=True)
class PlacedUnit:
    """A served unit whose files are in Triton's model repository."""

    recommender: str
    number: int
    model: str
    signature: Signature
    digest: str

    @property
    def proof(self) -> tuple[str, str]:
        """What a trial proves: this content with this configuration, for any recommender."""
        return self.digest, self.model.rpartition("_")[2]

    @property
    def trial(self) -> str:
        """Model name of the trial. Recommender names have no underscore, so none can equal the prefix."""
        return f"{_TRIAL}{self.recommender}-{self.number}"


class ModelRepository:
    """The models of one server. `home`: the server's folder; Triton reads the models in `home/models`. `gpu`: returns whether the server
    has a GPU and NVIDIA's backends."""

    def __init__(self, home: Path, store: ArtifactStore, gpu: Callable[[], bool] = lambda: False) -> None:
        self._gpu = gpu
        self.root = home.absolute() / "models"
        self._incoming = home.absolute() / "incoming"
        self._store = store
        self.root.mkdir(parents=True, exist_ok=True)

    def tidy(self) -> None:
        """Removes what an interrupted process left. Only the placing process may call this: others may be at work."""
        shutil.rmtree(self._incoming, ignore_errors=True)
        for trial in self.root.glob(f"{_TRIAL}*"):
            shutil.rmtree(trial, ignore_errors=True)

    def add(self, unit: ServedUnit) -> PlacedUnit:
        """Fetches a version, unless the files on disk have the right digests."""
        if not NAME.fullmatch(unit.recommender) or unit.number < 1:
            raise Invalid(f"'{unit.recommender}' version {unit.number} cannot be served: expected a recommender name and a number from 1")
        where = f"{SIGNATURE} of {unit.recommender} version {unit.number}"
        signature = read(Signature, _json(self._store.read(_file(unit, SIGNATURE)), where), where)
        files = self._files(signature)
        digest = "+".join(_file(unit, name).sha256 for name in files)
        placed = PlacedUnit(unit.recommender, unit.number, model_name(unit.recommender, signature, unit.number), signature, digest)
        folder = self._folder(placed.model, placed.number)
        names = (*files, SIGNATURE)
        if any(_sha256(folder / name) != unit.files[name].sha256 for name in names):
            self._fetch(unit, names, folder, signature)
        else:
            self._check(folder, signature)
        return placed

    def configure(self, model: str, signature: Signature, versions: Iterable[int]) -> None:
        """Sets the served versions; Triton follows at the next load."""
        versions = tuple(versions)
        for step in signature.steps if self._gpu() else ():
            folder, own = self._folder(model, versions[0]), self._folder(step_model(model, step), versions[0])
            own.mkdir(parents=True, exist_ok=True)
            for name, source in ((step.server_file, step.file), (signature.weights, signature.weights)):
                if name and source and not (own / name).exists():
                    os.link(folder / source, own / name)
        for name, text in server_configs(model, signature, versions, self._gpu()).items():
            path = self.root / name / "config.pbtxt"
            part = path.with_name(f".config.{secrets.token_hex(4)}")
            part.write_text(text)
            part.replace(path)

    def add_trial(self, placed: PlacedUnit) -> None:
        """Adds the version under the trial's name, with hard links instead of copies."""
        folder = self._folder(placed.trial, placed.number)
        self.remove_model(placed.trial)
        folder.mkdir(parents=True)
        for name in self._files(placed.signature):
            os.link(self._folder(placed.model, placed.number) / name, folder / name)
        self.configure(placed.trial, placed.signature, [placed.number])

    def remove_version(self, model: str, number: int) -> None:
        for folder in self._with_steps(model):
            shutil.rmtree(folder / str(number), ignore_errors=True)

    def remove_model(self, model: str) -> None:
        for folder in self._with_steps(model):
            shutil.rmtree(folder, ignore_errors=True)

    def models(self, recommender: str) -> dict[str, frozenset[int]]:
        """Returns the recommender's models on disk with their version folders, including former processes'."""
        model_folders = [path for path in self.root.iterdir() if path.is_dir() and recommender_of(path.name) == recommender]
        return {
            path.name: frozenset(int(version_folder.name) for version_folder in path.iterdir() if version_folder.name.isdigit())
            for path in model_folders
        }

    def _fetch(self, unit: ServedUnit, names: Iterable[str], folder: Path, signature: Signature) -> None:
        part = self._incoming / secrets.token_hex(8)
        try:
            for name in names:
                self._store.fetch(unit.files[name], part / name)
            self._check(part, signature)
            self.remove_version(folder.parent.name, unit.number)
            folder.parent.mkdir(parents=True, exist_ok=True)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _folder(self, model: str, number: int) -> Path:
        return self.root / model / str(number)

    def _with_steps(self, model: str) -> list[Path]:
        return [self.root / model, *self.root.glob(f"{model}.*")]

    def _files(self, signature: Signature) -> tuple[str, ...]:
        return signature.gpu_files if self._gpu() else signature.files

    def _check(self, folder: Path, signature: Signature) -> None:
        weights = (folder / signature.weights).stat().st_size if signature.weights else None
        for name in self._files(signature):
            if name.endswith(".onnx"):
                refuse_others(folder / name, weights)


def repository_of(host: ServerProcess, store: ArtifactStore) -> ModelRepository:
    return ModelRepository(host.repository.parent, store, lambda: host.gpu)


def _file(unit: ServedUnit, name: str) -> File:
    if name not in unit.files:
        raise Invalid(f"{unit.recommender} version {unit.number} has no {name}: the export did not publish it")
    return unit.files[name]


def model_name(recommender: str, signature: Signature, number: int) -> str:
    """Returns a name with a digest of the configuration, so that versions of one model agree on it. A unit in steps has a model for each
    version."""
    tensors = [[tensor.name, tensor.dtype, tensor.width] for tensor in signature.tensors]
    parts: list[Any] = [tensors, signature.output]
    extras = signature.model_dump(mode="json", include=_CONFIGURED, exclude_defaults=True)
    if extras:
        parts.append(extras)
    shape = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return f"{PREFIX}{recommender}_{shape[:8]}{f'-{number}' if signature.steps else ''}"


def recommender_of(model: str) -> str | None:
    """Returns the recommender that a model serves; None for trials, steps and foreign models."""
    name, _, shape = model.removeprefix(PREFIX).rpartition("_")
    return name if model.startswith(PREFIX) and shape and "." not in shape and NAME.fullmatch(name) else None


def _json(content: bytes, where: str) -> object:
    try:
        return json.loads(content)
    except ValueError as error:
        raise Invalid(f"{where}: not JSON: {error}") from None


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
