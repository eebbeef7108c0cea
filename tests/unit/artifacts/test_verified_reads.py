"""Each reader of a version's or a stage's file finds a single flipped bit and raises `Damaged`."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.stages.runner import Context
from services.gateway.loaded_version import load_unit
from services.index.opening import OpenIndexes
from services.monitor.features import ItemFeatures
from services.triton.verify import examine
from shared.artifacts import FsspecArtifacts
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import StageName, StageSpec, digest_of
from shared.domain.errors import Damaged
from shared.ports import Version
from shared.testing.records import LINEAGE

pytestmark = pytest.mark.requirement("G-11")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INPUTS = [{"name": "user", "dtype": "int64", "side": "user"}, {"name": "item", "dtype": "int64", "side": "item"}]
KEYS = np.array([1, 2, 3], np.int64)


def _npz(**arrays: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


FILES = {
    "model.onnx": b"a model",
    "signature.json": json.dumps({"user": "user", "item": "item", "inputs": INPUTS}).encode(),
    "catalogue.npz": _npz(item=KEYS),
    "parity.npz": _npz(user=KEYS, item=KEYS, score=KEYS.astype(np.float32)),
    "popular.npy": _npy(KEYS),
    "users.npy": _npy(KEYS),
}


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    return FsspecArtifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def version(store: FsspecArtifacts, tmp_path: Path) -> Version:
    files = {}
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
        files[name] = store.put(tmp_path / name)
    return Version("films", 1, "r1", digest_of(files), files, {}, LINEAGE, None, NOW)


@pytest.fixture
def damage(store: FsspecArtifacts, version: Version) -> Callable[[str], None]:
    def flip(name: str) -> None:
        sha = version.files[name].sha256
        path = Path(store.url) / "blobs" / sha[:2] / sha
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    return flip


def spec(tmp_path: Path, store: FsspecArtifacts, version: Version, stage: StageName) -> StageSpec:
    document = {
        "name": "films",
        "data": {"interactions": {"uri": "a.csv"}, "items": {"uri": "b.csv", "key": "item"}},
        "schema": {"user": "user", "item": "item", "time": "t", "label": {"column": "rating", "positive": ">= 4"}},
    }
    recommender = RecommenderSpec.model_validate(document)
    inputs = {"export": dict(version.files)}
    return StageSpec(
        stage=stage,
        run="r1",
        attempt=f"r1-{stage}-1",
        recommender=recommender,
        inputs=inputs,
        artifacts=store.url,
    )


@pytest.mark.parametrize("name", ["signature.json", "catalogue.npz", "popular.npy", "users.npy"])
def test_the_gateway_does_not_load_it(store: FsspecArtifacts, version: Version, damage: Callable[[str], None], name: str) -> None:
    load_unit(version, store, OpenIndexes())
    damage(name)
    with pytest.raises(Damaged, match=version.files[name].sha256[:12]):
        load_unit(version, store, OpenIndexes())


class Registry:
    def __init__(self, version: Version) -> None:
        self.version = version

    def get(self, recommender: str, number: int) -> Version:
        return self.version


@pytest.mark.parametrize("name", ["signature.json", "catalogue.npz"])
def test_the_monitor_does_not_measure_with_it(store: FsspecArtifacts, version: Version, damage: Callable[[str], None], name: str) -> None:
    registry = Registry(version)
    ItemFeatures(registry, store).of("films", 1)  # type: ignore[arg-type]
    damage(name)
    with pytest.raises(Damaged, match=version.files[name].sha256[:12]):
        ItemFeatures(registry, store).of("films", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(FILES))
def test_a_stage_does_not_work_with_it(
    store: FsspecArtifacts, version: Version, damage: Callable[[str], None], tmp_path: Path, name: str
) -> None:
    context = Context(spec(tmp_path, store, version, "evaluate"), tmp_path / "scratch", store, logging.getLogger("test"))
    damage(name)
    with pytest.raises(Damaged, match=version.files[name].sha256[:12]):
        context.fetch("export", name)


def test_a_stage_does_not_believe_what_an_earlier_life_left_in_its_folder(store: FsspecArtifacts, version: Version, tmp_path: Path) -> None:
    def life() -> Context:
        return Context(spec(tmp_path, store, version, "evaluate"), tmp_path / "scratch", store, logging.getLogger("test"))

    path = life().fetch("export", "model.onnx")
    path.write_bytes(b"a modem")
    assert life().fetch("export", "model.onnx").read_bytes() == b"a model"


@pytest.mark.parametrize("name", ["signature.json", "catalogue.npz", "parity.npz"])
def test_the_verify_stage_does_not_prove_with_it(
    store: FsspecArtifacts, version: Version, damage: Callable[[str], None], tmp_path: Path, name: str
) -> None:
    damage(name)
    with pytest.raises(Damaged, match=version.files[name].sha256[:12]):
        examine(spec(tmp_path, store, version, "verify"), store, tmp_path / "scratch")
