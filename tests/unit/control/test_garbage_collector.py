"""What is collected and what never is: by rule, then over random histories against an oracle."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, settings

from services.control.archive import EventArchive
from shared.artifacts import FsspecArtifacts, FsspecLive, FsspecTrash
from shared.artifacts.writing import write_whole
from shared.contracts.stage import File, digest_of
from shared.domain.errors import Damaged, NotFound
from shared.domain.retention import Retention, VersionFacts, versions_to_go
from shared.domain.route import Route
from shared.domain.run import StageDone
from shared.ports import Version
from shared.testing.records import LINEAGE
from tests.support.collection_histories import Histories, sweeps
from tests.support.garbage_collection import DAY, HOUR, Heap

pytestmark = pytest.mark.requirement("G-11")


@pytest.fixture
def heap():  # type: ignore[no-untyped-def]
    made = Heap()
    yield made
    made.close()


def version(heap: Heap, number: int, file: File) -> None:
    files = {"model.onnx": file}
    heap.rows.versions.append(Version("films", number, f"r{number}", digest_of(files), files, {}, LINEAGE, None, heap.clock.now()))


def registered(heap: Heap, number: int) -> File:
    """A run that has ended with a version."""
    etl, model = heap.put(f"rows {number}"), heap.put(f"model {number}")
    heap.publish(f"r{number}-etl-1", etl)
    heap.publish(f"r{number}-export-1", model)
    heap.rows.run(f"r{number}", "registered", [f"r{number}-etl-1", f"r{number}-export-1"])
    version(heap, number, model)
    return model


def test_what_nobody_names_goes_by_way_of_the_trash(heap: Heap) -> None:
    file = heap.put("nobody's")
    heap.pass_by(HOUR / 2)
    assert heap.collector().sweep().blobs == 0
    heap.pass_by(HOUR)
    assert heap.collector().sweep().blobs == 1
    assert (heap.has(file), heap.names("trash")) == (False, {file.sha256})
    heap.pass_by(2 * HOUR)
    done = heap.collector().sweep()
    assert (done.erased, done.erased_bytes, heap.names("trash")) == (1, file.size, set())


def test_what_attempts_leave_while_they_work_goes_when_their_run_has_ended(heap: Heap, tmp_path: Path) -> None:
    state = tmp_path / "state.npz"
    state.write_bytes(b"weights")
    for run, is_in in (("r1", "train"), ("r2", "failed")):
        heap.rows.run(run, is_in)
        live = FsspecLive(heap.url, f"{run}-train-1")
        live.tell({"epoch": 1})
        live.keep({}, {"state.npz": state})
    FsspecLive(heap.url, "another-train-1").tell({"epoch": 1})
    heap.collector().sweep()
    left = {path.split("/")[-2] for path in MemoryFileSystem().find(f"{heap.url}/live")}
    assert left == {"r1-train-1", "another-train-1"}, "of runs under way, and of what another platform trains in the same store"


def test_compacted_events_are_kept_for_ever_and_what_they_were_made_of_is_not(heap: Heap) -> None:
    dump, part = heap.put("a day's rows"), heap.put("the same as Parquet")
    name, archive = "interactions/date=2026-03-01/part-00000.parquet", EventArchive(heap.store)
    done = heap.manifest("compact-films-0-etl-1").model_copy(update={"files": {name: part}, "facts": {"rows": {name: 3}}})
    heap.store.publish(done)
    assert archive.add("films", 0, done) and not archive.add("films", 0, done)
    archive.show("films")
    heap.pass_by(400 * DAY)
    sweeps(heap)
    assert (heap.has(dump), heap.has(part)) == (False, True)
    [(day, [file])] = EventArchive(heap.store).days("films", "interactions").items()
    assert (str(day), file.file, file.rows) == ("2026-03-01", part, 3)
    assert heap.store.read(part) == MemoryFileSystem().cat_file(f"{heap.url}/events/films/{name}")


def test_putting_content_again_makes_it_young(heap: Heap) -> None:
    file = heap.put("content")
    heap.pass_by(2 * HOUR)
    heap.put("content")
    heap.pass_by(HOUR / 2)
    assert heap.collector().sweep().blobs == 0
    assert heap.has(file)


def test_old_versions_go_and_stay_in_the_registry_while_named_ones_keep_their_files(heap: Heap) -> None:
    models = {number: registered(heap, number) for number in range(1, 7)}
    heap.rows.route, heap.rows.before, heap.rows.tagged = Route(2), 1, {"champion": 3}
    heap.rows.run("r9", "train", serving=4)
    heap.pass_by(3 * DAY)
    would = heap.collector().preview()
    assert would.versions == [("films", 5)]
    assert heap.rows.marks == {}
    done = heap.collector().sweep()
    assert (done.versions, would.attempts) == ([("films", 5)], done.attempts)
    assert (would.blobs, would.bytes) == (2, models[5].size + len("rows 5"))
    sweeps(heap)
    assert {number for number, file in models.items() if not heap.has(file)} == {5}
    assert [one.number for one in heap.rows.versions] == [1, 2, 3, 4, 5, 6]
    assert "r5-etl-1.json" not in heap.names("manifests")
    assert "r4-etl-1.json" in heap.names("manifests")  # a warm start from version 4 reads it


def test_what_the_last_full_run_of_a_kept_warm_version_has_published_stays(heap: Heap) -> None:
    """A later full run is compared with its model before the refit."""
    for number in range(1, 5):
        registered(heap, number)
        if number in (3, 4):
            heap.rows.versions[-1] = replace(heap.rows.versions[-1], lineage=replace(LINEAGE, mode="warm"), parent=number - 1)
    heap.rows.route = Route(4)
    heap.pass_by(3 * DAY)
    sweeps(heap)
    assert set(heap.rows.marks) == {1, 2, 3}, heap.rows.marks
    assert {name for name in heap.names("manifests") if "etl" in name} == {"r2-etl-1.json", "r4-etl-1.json"}


@pytest.mark.requirement("C-01")
def test_of_a_deleted_recommender_all_versions_go_that_no_tag_names(heap: Heap) -> None:
    models = {number: registered(heap, number) for number in (1, 2, 3)}
    heap.rows.tagged = {"champion": 2}
    heap.pass_by(DAY)
    heap.rows.deleted_at = heap.clock.now()
    heap.rows.gone = {3: heap.clock.now()}
    assert heap.collector().sweep().versions == [("films", 1)], "a request may still be on its way to the last one"
    heap.pass_by(2 * HOUR)
    assert heap.collector().sweep().versions == [("films", 3)]
    sweeps(heap)
    assert {number for number, file in models.items() if heap.has(file)} == {2}


def test_equal_content_stays_as_long_as_anybody_names_it(heap: Heap) -> None:
    shared = heap.put("shared")
    for number in (1, 2):
        heap.publish(f"r{number}-export-1", shared)
        heap.rows.run(f"r{number}", "registered", [f"r{number}-export-1"])
        version(heap, number, shared)
    heap.pass_by(3 * DAY)
    assert heap.collector().sweep().versions == [("films", 1)]
    sweeps(heap)
    assert heap.has(shared)


def test_inputs_stay_pinned_until_the_run_has_ended(heap: Heap) -> None:
    file = heap.put("events")
    heap.rows.run("r1")
    heap.store.pin("r1-etl-1", [file])
    heap.pass_by(30 * DAY)
    sweeps(heap)
    assert heap.has(file)
    heap.rows.run("r1", "cancelled")
    sweeps(heap)
    assert not heap.has(file)
    assert heap.names("pins") == set()
    with pytest.raises(NotFound):
        heap.store.pin("r1-etl-2", [file])


def test_what_a_retried_run_takes_over_stays(heap: Heap) -> None:
    file = heap.put("rows")
    heap.publish("r1-etl-1", file)
    heap.rows.run("r1", "failed", ["r1-etl-1"])
    heap.rows.run("r2", "pending")
    record = heap.rows.runs["r2"]
    heap.rows.runs["r2"] = replace(
        record, spec=replace(record.spec, adopt={"etl": StageDone("etl", "r1-etl-1", record.created_at, record.created_at)})
    )
    heap.pass_by(9 * DAY)
    sweeps(heap)
    assert heap.has(file)
    heap.rows.run("r2", "cancelled")
    sweeps(heap)
    assert not heap.has(file)


def test_what_another_platform_published_in_the_same_store_stays(heap: Heap) -> None:
    file = heap.put("somebody else's")
    heap.publish("x1-etl-1", file)
    heap.pass_by(99 * DAY)
    sweeps(heap)
    assert heap.has(file)


def test_a_manifest_that_is_named_again_comes_back_with_its_files(heap: Heap) -> None:
    file = heap.put("rows")
    heap.publish("r1-etl-1", file)
    heap.rows.run("r1", "failed", ["r1-etl-1"])
    heap.pass_by(9 * DAY)
    assert heap.collector().sweep().attempts == ["r1-etl-1"]
    assert heap.store.manifest("r1-etl-1") is None
    heap.rows.outputs.add("r1-etl-1")
    assert heap.collector().sweep().restored == 1
    assert heap.store.manifest("r1-etl-1") is not None
    assert heap.has(file)


def test_nothing_goes_while_a_reference_cannot_be_read(heap: Heap) -> None:
    file = heap.put("rows")
    heap.publish("r1-etl-1", file)
    other = heap.put("nobody's")
    write_whole(heap.store._fs, b'{"half": ', heap.store._manifest("r1-etl-1"))
    heap.pass_by(9 * DAY)
    with pytest.raises(Damaged, match="r1-etl-1"):
        heap.collector().sweep()
    assert heap.has(other)


def test_a_folder_on_a_disk_is_collected_too(tmp_path: Path) -> None:
    heap = Heap()
    heap.url = str(tmp_path / "store")
    heap.store = FsspecArtifacts(heap.url)
    source = tmp_path / "content"
    files = []
    for text in ("kept", "nobody's", "pinned"):
        source.write_text(text)
        files.append(heap.store.put(source))
    kept, nobodys, pinned = files
    heap.rows.run("r1")
    heap.store.publish(heap.manifest("r1-etl-1", kept))
    heap.store.pin("r1-train-1", [pinned])
    assert heap.collector().sweep().blobs == 0
    old = time.time() - 86400
    for path in (tmp_path / "store").rglob("*"):
        os.utime(path, (old, old))
    assert heap.collector().sweep().blobs == 1
    assert [discarded.name for discarded in FsspecTrash(heap.url).trash()] == [nobodys.sha256]
    heap.clock.time += timedelta(hours=9)
    assert heap.collector().sweep().erased == 1
    assert heap.store.read(kept) == b"kept"
    assert heap.store.read(pinned) == b"pinned"
    assert list((tmp_path / "store" / "trash").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "facts"),
    [(3, {}), (1, {"holders": ("serving",)}), (1, {"left_at": timedelta(hours=5)}), (1, {"created_at": timedelta(minutes=5)})],
    ids=["among the newest", "named", "served lately", "young"],
)
def test_a_version_stays_for_each_reason_alone(number, facts) -> None:  # type: ignore[no-untyped-def]
    now = Heap().clock.now()
    ages = {name: now - value if isinstance(value, timedelta) else value for name, value in facts.items()}
    others = [VersionFacts(other, now - 99 * DAY) for other in (1, 2, 3) if other != number]
    retention = Retention(versions=1, served=DAY, runs=DAY, grace=HOUR)
    going = versions_to_go([*others, VersionFacts(number, **{"created_at": now - 99 * DAY, **ages})], retention, now)
    assert number not in going
    assert set(going) == {one.number for one in others if one.number != 3}


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
