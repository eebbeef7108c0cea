"""Fingerprints of data files, folders, encoders and queries, and the data roots that allow them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.contracts.sources import EncoderFile, ImagesFolder, Place
from shared.datafiles import DataFiles, data_files
from shared.domain.errors import BadData, Invalid, Unsupported
from tests.support.secret_files import write_secret


def test_a_file_is_told_by_its_size_and_the_time_it_was_written_in_words_that_people_read(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text("1234")
    os.utime(file, ns=(0, 1_767_225_600_000_000_007))
    files = DataFiles([str(tmp_path)])
    (name, said), *others = files.fingerprint("ratings.csv").items()
    assert name == str(file.resolve()) and not others
    assert said.startswith("4 bytes of 2026-01-01T00:00:00.000000007Z, changed ")
    os.utime(file, ns=(0, 1_767_225_600_000_000_008))
    assert "000000008Z" in files.fingerprint("ratings.csv")[str(file.resolve())]


def test_what_cannot_be_read_has_no_state(tmp_path: Path) -> None:
    assert DataFiles([str(tmp_path)]).fingerprint("nothere.csv") == {}
    assert DataFiles([str(tmp_path)]).fingerprint("/etc/passwd") == {}


@pytest.mark.requirement("G-29")
def test_a_folder_means_all_data_files_in_it_and_below(tmp_path: Path) -> None:
    for name in ("b.csv", "a.parquet", "deep/er/c.TSV", "_SUCCESS", ".hidden.csv", "_temporary/0/d.parquet", "README.txt"):
        (tmp_path / "days" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "days" / name).write_text("1")
    found = data_files("days", [str(tmp_path)])
    assert [str(path.relative_to(tmp_path.resolve())) for path in found] == ["days/a.parquet", "days/b.csv", "days/deep/er/c.TSV"]
    assert [path.name for path in data_files("days/.hidden.csv", [str(tmp_path)])] == [".hidden.csv"]


def test_a_folder_without_data_files_and_a_link_out_of_it_are_refused(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    with pytest.raises(BadData, match=r"days: the folder has no data files \(their names end in .parquet, "):
        data_files("days", [str(tmp_path)])
    (tmp_path / "secret.csv").write_text("1")
    (tmp_path / "days" / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(Invalid, match="not under an allowed data root"):
        data_files(str(tmp_path / "days"), [str(tmp_path / "days")])
    (tmp_path / "notes.md").write_text("1")
    with pytest.raises(Unsupported, match="not a data file"):
        data_files("notes.md", [str(tmp_path)])


def test_a_query_has_a_fault_where_its_database_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_secret(tmp_path / "databases.yaml", "shop: sqlite:////srv/shop.db")
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
    files = DataFiles([str(tmp_path)])
    files.check(Place.model_validate({"query": "SELECT 1", "from": "other"}))
    assert files.fault(Place.model_validate({"query": "SELECT 1", "from": "shop"})) is None
    assert "unknown database 'other'; known: shop" in str(files.fault(Place.model_validate({"query": "SELECT 1", "from": "other"})))


def test_a_small_file_is_read_under_the_roots_alone(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "campaigns.yaml").write_text("[]")
    (tmp_path / "secret.yaml").write_text("[]")
    (allowed / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    files = DataFiles([str(allowed)])
    assert files.read("campaigns.yaml", 2) == b"[]"
    with pytest.raises(Invalid, match=r"campaigns\.yaml: larger than 1 bytes, the maximum"):
        files.read("campaigns.yaml", 1)
    for uri in ("../secret.yaml", str(tmp_path / "secret.yaml"), "link.yaml"):
        with pytest.raises(Invalid, match="not under an allowed data root"):
            files.read(uri, 10)
    with pytest.raises(BadData, match=r"none\.yaml: file not found"):
        files.read("none.yaml", 10)


@pytest.mark.requirement("G-30")
def test_an_encoder_and_a_folder_of_images_are_told_by_their_files_and_lie_under_a_root(tmp_path: Path) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    (allowed / "posters" / "deep").mkdir(parents=True)
    outside.mkdir()
    for path in (allowed / "words.onnx", allowed / "posters" / "a [x].png", allowed / "posters" / "deep" / "b.jpg", outside / "c.onnx"):
        path.write_text("1")
    (allowed / "posters" / "link.png").symlink_to(outside / "c.onnx")
    files = DataFiles([str(allowed)])
    assert [Path(name).name for name in files.fingerprint("words.onnx", "encoder")] == ["words.onnx"]
    before = files.fingerprint("posters", "images")
    assert sorted(Path(name).name for name in before) == ["a [x].png", "b.jpg"]
    (allowed / "posters" / "deep" / "b.jpg").write_text("12")
    assert files.fingerprint("posters", "images") != before
    for uri in ("none.onnx", str(outside / "c.onnx"), "posters"):
        assert files.fingerprint(uri, "encoder") == {}
    assert files.fingerprint(str(outside), "images") == {}
    assert files.fault(EncoderFile(uri="none.onnx")) == "none.onnx: encoder not found"
    assert files.fault(ImagesFolder(uri="words.onnx")) == "words.onnx: folder of images not found"
    with pytest.raises(Invalid, match="not under an allowed data root"):
        files.check(EncoderFile(uri=str(outside / "c.onnx")))
