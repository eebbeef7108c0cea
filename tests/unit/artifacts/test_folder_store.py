"""Artifacts in a folder of a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from shared.artifacts import FsspecArtifacts
from shared.domain.errors import Damaged
from shared.testing.artifact_suite import ArtifactSuite, blob


class TestFolder(ArtifactSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FsspecArtifacts:
        return FsspecArtifacts(str(tmp_path / "store"))

    @pytest.fixture
    def place(self, store: FsspecArtifacts) -> Callable[[str], Path]:
        return Path(store.url).joinpath

    @pytest.mark.parametrize("damage", [b"a mod", b""])  # an object in a bucket can only be replaced whole
    def test_what_lost_its_end_is_noticed_as_well(
        self, store: FsspecArtifacts, place: Callable[[str], Path], source: Path, tmp_path: Path, damage: bytes
    ) -> None:
        file = store.put(source)
        place(blob(file)).write_bytes(damage)
        with pytest.raises(Damaged, match="damaged"):
            store.read(file)
        with pytest.raises(Damaged, match="damaged"):
            store.fetch(file, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
        assert store.put(source) == file
        assert store.read(file) == b"a model"


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FsspecArtifacts(str(tmp_path / "store"))
    (tmp_path / "file").write_text("a model")

    def half(_self: object, *given: object, **_more: object) -> None:
        Path(str(given[1] if Path(str(given[0])).name == "file" else given[0])).write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "put_file", half)
        patched.setattr(LocalFileSystem, "pipe_file", half)
        for write in (
            lambda: store.put(tmp_path / "file"),
            lambda: store.pin("r1-etl-1", []),
            lambda: store._create(f"{store._root}/manifests/a.json", b"{}", "a"),
        ):
            with pytest.raises(OSError, match="No space left"):
                write()
    assert [one for one in (tmp_path / "store").rglob("*") if one.is_file()] == []
    file = store.put(tmp_path / "file")
    assert store.read(file) == b"a model"
