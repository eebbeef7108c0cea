"""Files by their content: whole, checked, written once, healed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, NotFound, Unavailable

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> FsspecArtifacts:
    return FsspecArtifacts(str(tmp_path / "store"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"a model")
    return path


def blob(store: FsspecArtifacts, file: File) -> Path:
    return Path(store.url) / "blobs" / file.sha256[:2] / file.sha256


def manifest(**files: File) -> Manifest:
    return Manifest(stage="train", run="r1", attempt="r1-train-1", started=NOW, ended=NOW, files=files)


def test_what_was_put_is_read_back(store: FsspecArtifacts, source: Path, tmp_path: Path) -> None:
    file = store.put(source)
    assert store.read(file) == b"a model"
    assert store.fetch(file, tmp_path / "deep/copy").read_bytes() == b"a model"


def test_damage_is_noticed_at_every_read_and_healed_by_the_next_put(store: FsspecArtifacts, source: Path, tmp_path: Path) -> None:
    file = store.put(source)
    for damage in (b"a modem", b"a mod", b""):
        blob(store, file).write_bytes(damage)
        with pytest.raises(Unavailable, match="damaged"):
            store.read(file)
        with pytest.raises(Unavailable, match="damaged"):
            store.fetch(file, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        assert store.put(source) == file
        assert store.read(file) == b"a model"


def test_what_is_missing_is_not_found(store: FsspecArtifacts, source: Path) -> None:
    file = store.put(source)
    blob(store, file).unlink()
    with pytest.raises(NotFound):
        store.read(file)


def test_an_attempt_publishes_once_and_only_what_is_there(store: FsspecArtifacts, source: Path) -> None:
    file = store.put(source)
    with pytest.raises(NotFound, match="names 'lost'"):
        store.publish(manifest(lost=File(sha256="0" * 64, size=1)))
    assert store.manifest("r1-train-1") is None
    store.publish(manifest(model=file))
    assert store.manifest("r1-train-1") == manifest(model=file)
    with pytest.raises(Conflict, match="published already"):
        store.publish(manifest())


@pytest.mark.parametrize("attempt", ["../r1", "r1/x", "", ".hidden", "R1"])
def test_no_attempt_leads_out_of_the_store(store: FsspecArtifacts, attempt: str) -> None:
    with pytest.raises(NotFound):
        store.manifest(attempt)


def test_a_log_is_kept_by_its_attempt_and_read_from_anywhere(store: FsspecArtifacts, source: Path) -> None:
    assert store.kept_log("r1-train-1", 0, 100) is None
    store.keep_log("r1-train-1", source)
    assert store.kept_log("r1-train-1", 0, 100) == b"a model"
    assert store.kept_log("r1-train-1", 2, 3) == b"mod"
    assert store.kept_log("r1-train-1", 99, 3) == b""
    source.write_bytes(b"another")
    store.keep_log("r1-train-1", source)
    assert store.kept_log("r1-train-1", 0, 100) == b"another"
    for name in ("../outside", "r1/etl", ""):
        with pytest.raises(NotFound):
            store.kept_log(name, 0, 1)
