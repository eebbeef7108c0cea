"""The model repository on disk: what Triton reads, written so that it never meets half of anything.

    models/eyas-{recommender}_{shape}/config.pbtxt
    models/eyas-{recommender}_{shape}/{version}/model.onnx, signature.json

Versions with the same inputs stand side by side in one Triton model; `shape` is a digest of those inputs. Triton has one list
of inputs a model, so a version that takes another column can't stand beside its elders: it gets a model of its own, and both
serve while the canary runs. A version folder is fetched beside its place and moved in when it is whole; after that nothing in it
changes (a changed time stamp makes Triton load it anew). Folders that config.pbtxt doesn't list don't exist for Triton.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shared.contracts.spec import NAME
from shared.contracts.strict import read
from shared.domain.errors import Invalid
from shared.ports import ArtifactStore, ServedUnit
from shared.serving.config import model_config
from shared.serving.signature import Signature

MODEL, SIGNATURE = "model.onnx", "signature.json"
PREFIX = "eyas-"
_TRIAL = "eyas_trial-"


@dataclass(frozen=True)
class Placed:
    """A unit that lies in the repository."""

    recommender: str
    number: int
    model: str
    signature: Signature
    digest: str

    @property
    def proof(self) -> tuple[str, str]:
        """What a trial proves: this content with this configuration, whoever's version it is."""
        return self.digest, self.model.rpartition("_")[2]

    @property
    def trial(self) -> str:
        """The model that tries it before it is listed. No recommender's name has an underscore: none can be called so."""
        return f"{_TRIAL}{self.recommender}-{self.number}"


class ModelRepository:
    """`home` is the folder of the server that reads it: what Triton sees is its `models`."""

    def __init__(self, home: Path, store: ArtifactStore) -> None:
        self.root = home.absolute() / "models"
        self._incoming = home.absolute() / "incoming"
        self._store = store
        shutil.rmtree(self._incoming, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        for trial in self.root.glob(f"{_TRIAL}*"):  # of a life that ended in the middle of one
            shutil.rmtree(trial, ignore_errors=True)

    def add(self, unit: ServedUnit) -> Placed:
        """Fetches a version; one that is there with the right content, which is read again, is left as it is."""
        if not NAME.fullmatch(unit.recommender) or unit.number < 1:
            raise Invalid(f"'{unit.recommender}' version {unit.number} can't be served: not a recommender's name and a number from 1")
        for name in (MODEL, SIGNATURE):
            if name not in unit.files:
                raise Invalid(f"{unit.recommender} version {unit.number} has no {name}: its export published none")
        where = f"{SIGNATURE} of {unit.recommender} version {unit.number}"
        signature = read(Signature, _json(self._store.read(unit.files[SIGNATURE]), where), where)
        digest = unit.files[MODEL].sha256
        placed = Placed(unit.recommender, unit.number, model_name(unit.recommender, signature), signature, digest)
        folder = self._folder(placed.model, placed.number)
        if any(_sha256(folder / name) != unit.files[name].sha256 for name in (MODEL, SIGNATURE)):
            self._fetch(unit, folder)
        return placed

    def configure(self, model: str, signature: Signature, versions: Iterable[int]) -> None:
        """Says which versions serve; Triton follows at the next load."""
        path = self.root / model / "config.pbtxt"
        part = path.with_name(f".config.{secrets.token_hex(4)}")
        part.write_text(model_config(model, signature, versions))
        part.replace(path)

    def add_trial(self, placed: Placed) -> None:
        """The same content under the trial's name: linked, not copied."""
        folder = self._folder(placed.trial, placed.number)
        self.remove_model(placed.trial)
        folder.mkdir(parents=True)
        os.link(self._folder(placed.model, placed.number) / MODEL, folder / MODEL)
        self.configure(placed.trial, placed.signature, [placed.number])

    def remove_version(self, model: str, number: int) -> None:
        shutil.rmtree(self._folder(model, number), ignore_errors=True)

    def remove_model(self, model: str) -> None:
        shutil.rmtree(self.root / model, ignore_errors=True)

    def models(self, recommender: str) -> dict[str, frozenset[int]]:
        """The recommender's models on disk with their version folders, those of earlier lives included."""
        found = [path for path in self.root.iterdir() if path.is_dir() and recommender_of(path.name) == recommender]
        return {path.name: frozenset(int(one.name) for one in path.iterdir() if one.name.isdigit()) for path in found}

    def _fetch(self, unit: ServedUnit, folder: Path) -> None:
        part = self._incoming / secrets.token_hex(8)
        try:
            for name in (MODEL, SIGNATURE):
                self._store.fetch(unit.files[name], part / name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _folder(self, model: str, number: int) -> Path:
        return self.root / model / str(number)


def model_name(recommender: str, signature: Signature) -> str:
    tensors = [[one.name, one.dtype, one.width] for one in signature.inputs]
    shape = hashlib.sha256(json.dumps([tensors, signature.output]).encode()).hexdigest()
    return f"{PREFIX}{recommender}_{shape[:8]}"


def recommender_of(model: str) -> str | None:
    """The recommender that a model serves; None for trials and whatever isn't ours."""
    name, _, shape = model.removeprefix(PREFIX).rpartition("_")
    return name if model.startswith(PREFIX) and shape and NAME.fullmatch(name) else None


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
