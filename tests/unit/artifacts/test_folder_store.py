"""Artifacts in a folder of a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
