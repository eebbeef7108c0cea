"""Conformance suite of artifact stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.artifacts import FsspecArtifacts
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, Damaged, NotFound

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = File(sha256="0" * 64, size=1)


def manifest(**files: File) -> Manifest:
    return Manifest(stage="train", run="r1", attempt="r1-train-1", started=NOW, ended=NOW, files=files)


def blob(file: File) -> str:
    return f"blobs/{file.sha256[:2]}/{file.sha256}"


class ArtifactSuite:
    """Subclasses provide `store`, and `place`, which returns the local path of an object of the store."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(b"a model")
        return path

    def test_a_store_is_empty_until_something_is_put_into_it(self, store: FsspecArtifacts, tmp_path: Path) -> None:
        assert store.is_empty()
        (tmp_path / "file").write_text("a model")
        store.put(tmp_path / "file")
        assert not store.is_empty()

    @pytest.mark.parametrize("content", [b"a model", b""])
    def test_what_was_put_is_read_back(
        self, store: FsspecArtifacts, place: Callable[[str], Path], source: Path, tmp_path: Path, content: bytes
    ) -> None:
        source.write_bytes(content)
        file = store.put(source)
        assert store.put(source) == file
        assert store.holds(file)
        assert store.read(file) == content
        assert store.fetch(file, tmp_path / "deep/copy").read_bytes() == content
        store.show(file, "events/films/part-0.parquet")
        assert place("events/films/part-0.parquet").read_bytes() == content
        (stored,) = place("blobs").rglob(f"*{file.sha256[8:]}*")
        assert stored == place(blob(file)), "expected one file and no partial file"

    def test_what_is_hidden_and_erased_is_gone_at_once(self, store: FsspecArtifacts, place: Callable[[str], Path], source: Path) -> None:
        file = store.put(source)
        store.show(file, "events/films/part-0.parquet")
        for _ in range(2):  # can be repeated
            store.hide("events/films/part-0.parquet")
            store.erase(file)
            assert not store.holds(file)
            assert not place("events/films/part-0.parquet").exists() and not place(blob(file)).exists()

    def test_damage_is_noticed_at_every_read_and_healed_by_the_next_put(
        self, store: FsspecArtifacts, place: Callable[[str], Path], source: Path, tmp_path: Path
    ) -> None:
        file = store.put(source)
        place(blob(file)).write_bytes(b"a modem")
        with pytest.raises(Damaged, match="damaged"):
            store.read(file)
        with pytest.raises(Damaged, match="damaged"):
            store.fetch(file, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        assert store.put(source) == file
        assert store.read(file) == b"a model"

    def test_a_damaged_file_is_set_aside_and_a_sound_one_stays(
        self, store: FsspecArtifacts, place: Callable[[str], Path], source: Path
    ) -> None:
        file = store.put(source)
        assert store.holds(file) and not store.set_aside(file)
        place(blob(file)).write_bytes(b"a modem")
        assert store.set_aside(file)
        assert not store.holds(file)
        assert place(f"damaged/{file.sha256}").read_bytes() == b"a modem"
        assert store.put(source) == file and store.holds(file)

    def test_what_is_missing_is_not_found(self, store: FsspecArtifacts, tmp_path: Path) -> None:
        assert not store.holds(LOST)
        with pytest.raises(NotFound):
            store.read(LOST)
        with pytest.raises(NotFound):
            store.fetch(LOST, tmp_path / "copy")
        with pytest.raises(NotFound):
            store.pin("r1-export-1", [LOST])

    def test_an_attempt_publishes_once_and_only_what_is_there(self, store: FsspecArtifacts, source: Path) -> None:
        file = store.put(source)
        with pytest.raises(NotFound, match="names 'lost'"):
            store.publish(manifest(lost=LOST))
        assert store.manifest("r1-train-1") is None
        store.publish(manifest(model=file))
        assert store.manifest("r1-train-1") == manifest(model=file)
        with pytest.raises(Conflict, match="published already"):
            store.publish(manifest())

    @pytest.mark.parametrize("attempt", ["../r1", "r1/x", "", ".hidden", "R1"])
    def test_no_attempt_leads_out_of_the_store(self, store: FsspecArtifacts, attempt: str) -> None:
        with pytest.raises(NotFound):
            store.manifest(attempt)
        with pytest.raises(NotFound):
            store.kept_log(attempt, 0, 1)

    def test_a_log_is_kept_by_its_attempt_and_read_from_anywhere(self, store: FsspecArtifacts, source: Path) -> None:
        assert store.kept_log("r1-train-1", 0, 100) is None
        store.keep_log("r1-train-1", source)
        assert store.kept_log("r1-train-1", 0, 100) == b"a model"
        assert store.kept_log("r1-train-1", 2, 3) == b"mod"
        assert store.kept_log("r1-train-1", 99, 3) == b""
        source.write_bytes(b"another")
        store.keep_log("r1-train-1", source)
        assert store.kept_log("r1-train-1", 0, 100) == b"another"
