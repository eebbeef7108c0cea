"""Checkpoints and progress of a stage that runs: complete or absent, the newest first, deleted when the stage has published."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from shared.artifacts import FsspecArtifacts, FsspecLive
from shared.contracts.progress import Progress
from shared.domain.errors import Damaged, Invalid, NotFound


@pytest.fixture(params=["disk", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "disk":
        yield str(tmp_path / "store")
        return
    there = f"memory://live-{secrets.token_hex(6)}"
    yield there
    MemoryFileSystem().rm(there, recursive=True)


def _files(folder: Path, **contents: str) -> dict[str, Path]:
    found = {}
    for name, content in contents.items():
        found[f"{name}.npz"] = folder / f"{name}.npz"
        found[f"{name}.npz"].write_text(content)
    return found


def _names(url: str) -> set[str]:
    system, root = fsspec.core.url_to_fs(url)
    return {path.rsplit("/", 1)[1] for path in system.find(f"{root}/live")}


def test_what_was_kept_is_found_by_the_next_try_and_fetched_whole(url: str, tmp_path: Path) -> None:
    FsspecLive(url, "r1-train-1").keep({"epoch": 3}, _files(tmp_path, state="weights", best="better"))
    (checkpoint,) = FsspecLive(url, "r1-train-3").checkpoints()
    assert (checkpoint.attempt, checkpoint.about, set(checkpoint.files)) == ("r1-train-1", {"epoch": 3}, {"state.npz", "best.npz"})
    assert FsspecLive(url, "r1-train-3").fetch(checkpoint, "best.npz", tmp_path / "again").read_text() == "better"
    assert not list(FsspecLive(url, "r2-train-2").checkpoints()) and not list(FsspecLive(url, "r1-etl-2").checkpoints())


def test_a_try_keeps_one_checkpoint_and_writes_what_has_not_changed_once(url: str, tmp_path: Path) -> None:
    live = FsspecLive(url, "r1-train-1")
    live.keep({"epoch": 1}, _files(tmp_path, state="one", best="b"))
    first = _names(url)
    live.keep({"epoch": 2}, _files(tmp_path, state="two", best="b"))
    assert len(first) == len(_names(url)) == 3 and len(first & _names(url)) == 2
    (checkpoint,) = live.checkpoints()
    assert checkpoint.about == {"epoch": 2} and live.fetch(checkpoint, "state.npz", tmp_path / "again").read_text() == "two"


def test_the_newest_try_comes_first_and_takes_the_place_of_those_before_it(url: str, tmp_path: Path) -> None:
    FsspecLive(url, "r1-train-1").keep({"epoch": 1}, _files(tmp_path, state="one"))
    FsspecLive(url, "r1-train-10").keep({"epoch": 2}, _files(tmp_path, state="two"))
    assert [checkpoint.attempt for checkpoint in FsspecLive(url, "r1-train-11").checkpoints()] == ["r1-train-10"]
    FsspecLive(url, "r1-train-1").keep({"epoch": 1}, _files(tmp_path, state="one"))  # it was given up, and works on
    assert [checkpoint.about for checkpoint in FsspecLive(url, "r1-train-11").checkpoints()] == [{"epoch": 2}, {"epoch": 1}]
    assert [checkpoint.attempt for checkpoint in FsspecLive(url, "r1-train-1").checkpoints()] == ["r1-train-1"]


def test_what_is_damaged_or_gone_is_said_and_never_given(url: str, tmp_path: Path) -> None:
    live = FsspecLive(url, "r1-train-1")
    live.keep({}, _files(tmp_path, state="weights"))
    (checkpoint,) = live.checkpoints()
    system, root = fsspec.core.url_to_fs(url)
    (path,) = (path for path in system.find(f"{root}/live") if "state" in path)
    system.pipe_file(path, b"weight")
    with pytest.raises(Damaged, match=r"the checkpoint of r1-train-1 is damaged: 'state\.npz'"):
        live.fetch(checkpoint, "state.npz", tmp_path / "again")
    system.rm_file(path)
    with pytest.raises(NotFound, match="the checkpoint of r1-train-1 is missing"):
        live.fetch(checkpoint, "state.npz", tmp_path / "again")
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".again*"))


def test_a_checkpoint_of_another_release_is_none(url: str, tmp_path: Path) -> None:
    live = FsspecLive(url, "r1-train-1")
    live.keep({}, _files(tmp_path, state="weights"))
    system, root = fsspec.core.url_to_fs(url)
    (path,) = (path for path in system.find(f"{root}/live") if path.endswith(".json"))
    system.pipe_file(path, json.dumps(json.loads(system.cat_file(path)) | {"version": 2}).encode())
    assert not list(live.checkpoints())


@pytest.mark.parametrize("left", [b"", b"\0\0\0", b"[]", b'{"version": 1}', b'{"version": 1, "about": {}, "files": {"state.npz": {}}}'])
def test_a_checkpoint_whose_document_is_damaged_is_none_and_the_next_one_takes_its_place(left: bytes, url: str, tmp_path: Path) -> None:
    live = FsspecLive(url, "r1-train-1")
    live.keep({}, _files(tmp_path, state="weights"))
    system, root = fsspec.core.url_to_fs(url)
    (path,) = (path for path in system.find(f"{root}/live") if path.endswith(".json"))
    system.pipe_file(path, left)
    assert not list(live.checkpoints())
    live.keep({"epoch": 2}, _files(tmp_path, state="weights"))
    assert [checkpoint.about for checkpoint in live.checkpoints()] == [{"epoch": 2}]


def test_progress_that_is_damaged_is_none(url: str) -> None:
    live = FsspecLive(url, "r1-train-1")
    live.tell({"epoch": 1})
    system, root = fsspec.core.url_to_fs(url)
    (path,) = system.find(f"{root}/live")
    system.pipe_file(path, b"")
    assert live.progress() is None
    assert FsspecArtifacts(url).progress("r1-train-1") is None


def test_a_try_that_has_published_clears_after_itself_and_those_before_it(url: str, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        live = FsspecLive(url, f"r1-train-{number}")
        live.keep({}, _files(tmp_path, state=f"state {number}"))
        live.tell({"epoch": number})
    FsspecLive(url, "r2-train-1").tell({"epoch": 1})
    FsspecLive(url, "r1-train-3").clear()
    FsspecLive(url, "r1-train-3").clear()
    assert _names(url) == {"progress.json"} and FsspecLive(url, "r2-train-1").progress() == {"epoch": 1}


def test_how_far_an_attempt_is_is_read_through_the_store(url: str) -> None:
    store, live = FsspecArtifacts(url), FsspecLive(url, "r1-train-1")
    assert store.progress("r1-train-1") is None
    far = Progress(at=datetime(2026, 1, 1, tzinfo=UTC), epoch=1, epochs=2, step=3, steps=4, loss=0.5, rows_per_s=6.0, seconds_left=None)
    live.tell(far.model_dump(mode="json"))
    assert store.progress("r1-train-1") == far
    live.tell({"epoch": 1})
    with pytest.raises(Invalid, match=r"progress\.json of r1-train-1"):
        store.progress("r1-train-1")
    for name in ("../r1", "r1/x", ""):
        with pytest.raises(NotFound):
            store.progress(name)
