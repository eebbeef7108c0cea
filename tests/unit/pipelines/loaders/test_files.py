"""What a loader is given: files by path, pattern, folder or list, here or in a store, and what is said where they can't be read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from pipelines.loaders.chunks import Corrupt, open_chunks
from pipelines.loaders.files import find_files
from pipelines.loaders.loader import open_loader
from pipelines.loaders.plan import Shard
from shared.domain.errors import BadData, EyasError, Invalid, Unavailable


def write(path: Path, first: int = 0, rows: int = 60, group: int = 20, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.arange(first, first + rows)
    wide = pa.array(np.random.default_rng(first).random((rows, 50)).tolist(), pa.list_(pa.float64()))
    table = pa.table({"id": ids, "wide": wide, "half": ids / 2})
    pq.write_table(table, path, row_group_size=group, compression="none", use_dictionary=False, **more)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for at, name in enumerate(("b.parquet", "a.parquet", "10.parquet", "2.parquet", "deep/er/c.pq", "_tmp/d.parquet", ".hidden.parquet")):
        write(tmp_path / "rows" / name, 100 * at)
    (tmp_path / "rows" / "notes.txt").write_text("what this is")
    (tmp_path / "rows" / "_SUCCESS").write_text("")
    (tmp_path / "none").mkdir()
    return tmp_path


def names(folder: Path, paths: Any, filesystem: Any = None) -> list[str]:
    return [one.name.split("rows/", 1)[1] for one in find_files(paths, filesystem)]


FOLDER = ["10.parquet", "2.parquet", "a.parquet", "b.parquet", "deep/er/c.pq"]
GIVEN: list[tuple[Any, list[str]]] = [
    ("rows/b.parquet", ["b.parquet"]),
    ("rows", FOLDER),
    ("rows/", FOLDER),
    ("rows/*.parquet", FOLDER[:4]),
    ("rows/**/*.p*", FOLDER),
    ("rows/[ab].parquet", FOLDER[2:4]),
    (["rows/b.parquet", "rows/1*.parquet", "rows/deep"], ["b.parquet", "10.parquet", "deep/er/c.pq"]),
]


@pytest.mark.requirement("T-03")
def test_files_come_in_the_order_of_their_names_as_text_and_lists_keep_theirs(
    subtests: pytest.Subtests, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for paths, found in GIVEN:
        with subtests.test(paths=paths):
            monkeypatch.chdir(tree)
            given = [paths] if isinstance(paths, str) else paths
            here = sorted(found) if "**" in str(paths) else found
            if "**" not in str(paths):
                assert names(tree, paths) == found
                assert names(tree, [Path(one) for one in given]) == found
                assert names(tree, [tree / one for one in given]) == found
            assert [one for one in names(tree, paths) if not one.startswith("_")] == here
            for filesystem in (fsspec.filesystem("file"), pyarrow.fs.LocalFileSystem()):
                assert [one for one in names(tree, [str(tree / one) for one in given], filesystem) if one[0] not in "._"] == here


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "[a].parquet")
    assert names(tmp_path, tmp_path / "rows" / "[a].parquet") == ["[a].parquet"]


NOT_FOUND: list[tuple[Any, type[EyasError], str]] = [
    ([], Invalid, "paths: empty; name a Parquet file"),
    ("", Invalid, "paths: one path is empty"),
    ("rows/none.parquet", BadData, "rows/none.parquet: file not found"),
    ("rows/z*.parquet", BadData, r"rows/z\*.parquet: no file matches"),
    ("none", BadData, "none: folder without Parquet files"),
    (["rows/a.parquet", "rows/*.parquet"], Invalid, "rows/a.parquet: named twice"),
    ("hdfs://lake/rows", Invalid, "hdfs://lake/rows: pass `filesystem` for paths that are neither local nor s3://"),
    ("rows/notes.txt", BadData, "rows/notes.txt: not a Parquet file"),
]


def test_what_cant_be_found_is_said_in_one_line(subtests: pytest.Subtests, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for paths, kind, said in NOT_FOUND:
        with subtests.test(paths=paths):
            monkeypatch.chdir(tree)
            with pytest.raises(kind, match=said) as caught:
                open_loader(paths)
            assert "\n" not in str(caught.value)


def test_a_missing_column_is_named_with_what_there_is_and_what_may_be_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet")
    with pytest.raises(Invalid, match=r"rows.parquet: column 'Id' is missing \(did you mean 'id'\?\); columns: id, wide, half$"):
        open_chunks(path, ["Id"])
    with pytest.raises(Invalid, match=r"column 'hafl' is missing \(did you mean 'half'\?\)"):
        open_chunks(path, ["id", "hafl"])
    with pytest.raises(Invalid, match=r"column 'zzz' is missing; columns: id"):
        open_chunks(path, ["zzz"])
    for wrong in ("id", [], ["id", "id"]):
        with pytest.raises(Invalid, match="columns: must be a list of distinct names"):
            open_chunks(path, wrong)


def test_files_must_have_the_same_columns_in_any_order(tmp_path: Path) -> None:
    one, other = pa.table({"id": pa.array([1], pa.int32()), "x": [0.5]}), pa.table({"x": [1.5], "id": pa.array([2], pa.int32())})
    pq.write_table(one, tmp_path / "1.parquet")
    pq.write_table(other, tmp_path / "2.parquet")
    (batch,) = open_loader(tmp_path, shuffle=False).epoch(0)
    assert (batch["id"].tolist(), batch["x"].tolist()) == ([1, 2], [0.5, 1.5])  # type: ignore[union-attr]
    pq.write_table(other.append_column("more", pa.array([1])), tmp_path / "3.parquet")
    with pytest.raises(Invalid, match=r"3.parquet: column 'more' is missing in \S+1.parquet; name the columns to load"):
        open_chunks(tmp_path)
    assert open_chunks(tmp_path, ["x"]).rows == 3
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "x": [1.5]}), tmp_path / "3.parquet")
    with pytest.raises(Invalid, match=r"3.parquet: column 'id' is int64, but int32 in \S+1.parquet; write one type"):
        open_chunks(tmp_path)
    pq.write_table(other.select(["x"]), tmp_path / "3.parquet")
    with pytest.raises(Invalid, match=r"3.parquet: column 'id' is missing"):
        open_chunks(tmp_path)


def test_lists_of_either_kind_and_dictionaries_beside_plain_columns_are_alike(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([[1]], pa.list_(pa.int64())), "y": [1]}), tmp_path / "1.parquet")
    pq.write_table(
        pa.table({"x": pa.array([[2]], pa.large_list(pa.int64())), "y": pa.array([2]).dictionary_encode()}), tmp_path / "2.parquet"
    )
    (batch,) = open_loader(tmp_path, shuffle=False).epoch(0)
    assert batch["x"].values.tolist() == batch["y"].tolist() == [1, 2]  # type: ignore[union-attr]


def test_a_split_without_rows_is_refused_and_so_are_shards_and_batches_that_get_none(tmp_path: Path) -> None:
    write(tmp_path / "empty.parquet", rows=0)
    with pytest.raises(BadData, match=r"^no rows in \S+empty.parquet"):
        open_loader(tmp_path / "empty.parquet")
    write(tmp_path / "few.parquet", rows=3)
    assert len(open_loader(tmp_path, shard=Shard(2, 3))) == 1
    with pytest.raises(BadData, match=r"^3 rows in .*: too few for 4 ranks"):
        open_loader(tmp_path, shard=Shard(2, 4))
    with pytest.raises(BadData, match=r"^3 rows in .*: no full batch of 4"):
        open_loader(tmp_path, batch_size=4, drop_last=True)


BROKEN: list[tuple[Any, type[EyasError], str]] = [
    (lambda content: content[:-20], Corrupt, "footer is missing or damaged .*; write the file again"),
    (lambda content: content[: len(content) // 2], Corrupt, "footer is missing or damaged"),
    (lambda content: content[:-30] + b"\xff" * 22 + content[-8:], Corrupt, "footer is missing or damaged"),
    (lambda whole: b"", Corrupt, "the file is empty"),
    (lambda content: b"id,half\n1,2\n", BadData, "not a Parquet file"),
    (lambda whole: b"PARE" + whole[4:-4] + b"PARE", BadData, "encrypted"),
]


def test_a_file_that_is_no_whole_parquet_file_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for content, kind, said in BROKEN:
        with subtests.test(said=said):
            path = write(tmp_path / "rows.parquet")
            path.write_bytes(content(path.read_bytes()))
            with pytest.raises(kind, match=rf"rows.parquet: .*{said}") as caught:
                open_chunks(path)
            assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def flip(path: Path, group: int, column: int = 0) -> None:
    """One bit of a group's page."""
    meta = pq.ParquetFile(path).metadata.row_group(group).column(column)
    content = bytearray(path.read_bytes())
    content[meta.data_page_offset + meta.total_compressed_size - 3] ^= 16
    path.write_bytes(content)


def test_a_damaged_page_is_found_by_its_checksum_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", write_page_checksum=True)
    flip(path, 1)
    with pytest.raises(Corrupt, match=r"rows.parquet: row group 1 is corrupt: .*CRC"):
        list(open_loader(path).epoch(0))
    assert len(list(open_loader(path, ["half"]).epoch(0))) == 1, "of other columns nothing is lost"


def test_a_file_that_changes_after_it_was_opened_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, how in enumerate(["rewritten", "replaced", "cut", "gone"]):
        with subtests.test(how=how):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write(folder / "rows.parquet")
            loader = open_loader(path)
            if how == "rewritten":
                write(path, first=7)
                os.utime(path, ns=(1, 1))
            elif how == "replaced":
                write(folder / "new", rows=80).replace(path)
            elif how == "cut":
                path.write_bytes(path.read_bytes()[:1000])
            else:
                path.unlink()
            message = "file not found" if how == "gone" else "changed while it was read"
            with pytest.raises(BadData, match=f"rows.parquet: {message}"):
                list(loader.epoch(0))


def ids(loader: Any) -> list[int]:
    return [one for batch in loader.epoch(0) for one in batch["id"].tolist()]


def memory(**files: bytes) -> Any:
    found = fsspec.filesystem("memory")
    found.store.clear()
    for name, content in files.items():
        found.pipe_file(f"/rows/{name}.parquet", content)
    return found


@pytest.mark.requirement("T-03")
def test_any_filesystem_of_fsspec_or_pyarrow_will_do(tmp_path: Path) -> None:
    a, b = write(tmp_path / "rows" / "a.parquet"), write(tmp_path / "rows" / "b.parquet", 60)
    some = memory(a=a.read_bytes(), b=b.read_bytes())
    expected = ids(open_loader(tmp_path / "rows", batch_size=7))
    assert sorted(expected) == list(range(120))
    for paths in ("/rows", "memory://rows/*.parquet", ["/rows/a.parquet", "/rows/b.parquet"]):
        assert ids(open_loader(paths, batch_size=7, filesystem=some)) == expected
    below = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    assert ids(open_loader("rows", batch_size=7, filesystem=below)) == expected
    with pytest.raises(Invalid, match="filesystem: expected a filesystem of fsspec or pyarrow, not str"):
        open_loader("rows", filesystem="s3")


def test_a_filesystem_that_fails_is_asked_again_and_then_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.loaders.remote.PAUSE", 0.0)
    some = memory(a=write(tmp_path / "a.parquet").read_bytes())
    loader, real, left = open_loader("/rows", filesystem=some), some.cat_file, [2]

    def failing(path: str, start: int, end: int) -> bytes:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionResetError("gone")
        return bytes(real(path, start, end)[: 5 if left[0] == -1 else None])

    monkeypatch.setattr(some, "cat_file", failing)
    assert sorted(ids(loader)) == list(range(60))
    left[0] = 100
    with pytest.raises(Unavailable, match=r"/rows/a.parquet: reading failed 4 times: ConnectionResetError: gone"):
        ids(loader)
    left[0] = -2
    some.pipe_file("/rows/a.parquet", write(tmp_path / "a.parquet", rows=61).read_bytes())
    with pytest.raises(BadData, match="changed while it was read"):
        ids(loader)
