"""What learned from a forgotten user is gone by the deadline, and nothing else goes for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule
from prometheus_client import REGISTRY

from shared.contracts.stage import LEFT_OUT, File, digest_of
from shared.domain.retention import Retention, VersionFacts, versions_to_go
from shared.domain.route import Route
from shared.domain.stage_reuse import ReuseBasis
from shared.ports import Version
from shared.testing.records import LINEAGE
from tests.support.collection_histories import Histories
from tests.support.garbage_collection import DAY, HOUR, Heap

pytestmark = pytest.mark.requirement("G-11")

RETENTION = Retention(versions=10, served=90 * DAY, runs=90 * DAY, grace=DAY, forgotten=30 * DAY)
EVERY = 4 * HOUR


@pytest.fixture
def heap() -> Iterator[Heap]:
    made = Heap(RETENTION)
    yield made
    made.close()


def register(heap: Heap, number: int, recommender: str = "films", parent: int | None = None) -> set[str]:
    """Registers a version of a run that reads its data now. Returns the blobs of the run."""
    run, name = f"r{number}", f"{recommender} {number}"
    rows, model = heap.put(f"rows of {name}"), heap.put(f"model of {name}")
    heap.publish(f"{run}-etl-1", rows)
    heap.publish(f"{run}-export-1", model)
    heap.rows.run(run, "registered", [f"{run}-etl-1", f"{run}-export-1"])
    heap.rows.runs[run] = replace(heap.rows.runs[run], recommender=recommender)
    now, files = heap.clock.now(), {"model.onnx": model}
    facts = {"etl": {LEFT_OUT: len(heap.rows.forgotten)} if heap.rows.forgotten else {}}
    lineage = replace(LINEAGE, snapshot=now, mode="full" if parent is None else "warm", stages=facts)
    heap.rows.versions.append(Version(recommender, number, run, digest_of(files), files, {}, lineage, parent, now))
    return {rows.sha256, model.sha256}


def fail(heap: Heap, run: str) -> File:
    """A run that fails after its first stage, whose output may be reused."""
    file = heap.put(f"rows of {run}")
    heap.publish(f"{run}-etl-1", file)
    heap.rows.run(run, "failed", [f"{run}-etl-1"])
    heap.rows.outputs.add(f"{run}-etl-1")
    return file


def sweep_for(heap: Heap, span: timedelta) -> None:
    for _ in range(int(span / EVERY)):
        heap.pass_by(EVERY)
        heap.collector().sweep()


def forget(heap: Heap) -> None:
    heap.pass_by(HOUR)
    heap.rows.forgotten.append(heap.clock.now())
    heap.pass_by(HOUR)


def overdue() -> float | None:
    return REGISTRY.get_sample_value("eyas_forgotten_versions_overdue", {"recommender": "films"})


def test_everything_of_before_is_gone_by_the_deadline_and_nothing_of_after(heap: Heap) -> None:
    for number in (1, 2, 3):
        register(heap, number)
        heap.pass_by(DAY)
    fail(heap, "f1")
    of_others = register(heap, 101, "books")
    forget(heap)
    after = register(heap, 4) | register(heap, 5) | {fail(heap, "f2").sha256}
    heap.rows.route, heap.rows.before, heap.rows.tagged = Route(4), 3, {"champion": 5}
    sweep_for(heap, 26 * DAY)
    assert (heap.rows.marks, len(heap.names("manifests"))) == ({}, 14), "nothing goes early"
    sweep_for(heap, 4 * DAY - EVERY)
    assert set(heap.rows.marks) == {1, 2, 3}
    stay = {f"r{number}-{stage}-1.json" for number in (4, 5, 101) for stage in ("etl", "export")} | {"f2-etl-1.json"}
    assert heap.names("manifests") == stay
    assert (heap.names("blobs"), heap.names("trash")) == (after | of_others, set())
    assert overdue() == 0


def test_without_forgotten_users_nothing_of_it_goes(heap: Heap) -> None:
    blobs = register(heap, 1) | {fail(heap, "f1").sha256}
    sweep_for(heap, 31 * DAY)
    assert (heap.rows.marks, heap.names("blobs")) == ({}, blobs)


def test_what_serves_or_is_tagged_stays_and_is_counted_until_it_may_go(heap: Heap, caplog: pytest.LogCaptureFixture) -> None:
    blobs = register(heap, 1) | register(heap, 2)
    heap.rows.route, heap.rows.tagged = Route(1), {"champion": 2}
    forget(heap)
    after = register(heap, 3)
    sweep_for(heap, 30 * DAY - EVERY)
    assert (heap.rows.marks, overdue()) == ({}, 0)
    heap.pass_by(DAY)
    with caplog.at_level(logging.WARNING):
        heap.collector().sweep()
    assert (heap.rows.marks, overdue(), heap.names("blobs")) == ({}, 2, blobs | after)
    assert [record.getMessage() for record in caplog.records] == [
        "forgetting: version is overdue recommender=films version=1 holders=serving",
        "forgetting: version is overdue recommender=films version=2 holders=tag champion",
    ]
    heap.rows.route, heap.rows.before, heap.rows.gone, heap.rows.tagged = Route(3), 1, {1: heap.clock.now()}, {}
    assert heap.collector().sweep().versions == [("films", 2)], "a request may still be on its way to version 1"
    assert overdue() == 1
    sweep_for(heap, 4 * DAY)
    assert (set(heap.rows.marks), overdue(), heap.names("blobs"), heap.names("trash")) == ({1, 2}, 0, after, set())


def test_a_version_that_continues_from_one_of_before_goes_too(heap: Heap) -> None:
    register(heap, 1)
    forget(heap)
    register(heap, 2, parent=1)
    register(heap, 3)
    register(heap, 4, parent=3)
    sweep_for(heap, 30 * DAY)
    assert set(heap.rows.marks) == {1, 2}


def test_what_a_later_run_took_over_from_before_goes_with_the_run(heap: Heap) -> None:
    fail(heap, "f1")
    forget(heap)
    fail(heap, "f2")
    run = heap.rows.runs["f2"]
    [done] = run.status.stages
    reused = replace(done, basis=ReuseBasis(attempt="f1-etl-1", since=heap.rows.runs["f1"].created_at))
    heap.rows.runs["f2"] = replace(run, status=replace(run.status, stages=(reused,)))
    sweep_for(heap, 30 * DAY)
    assert heap.names("manifests") == heap.names("blobs") == heap.names("trash") == set()


def test_a_run_under_way_keeps_what_it_reads(heap: Heap) -> None:
    blobs = register(heap, 1) | {fail(heap, "f1").sha256}
    heap.rows.run("r9", "train", ["f1-etl-1"], serving=1)
    forget(heap)
    sweep_for(heap, 31 * DAY)
    assert (heap.names("blobs"), overdue()) == (blobs, 1)


def test_a_preview_tells_what_the_sweep_does(heap: Heap) -> None:
    register(heap, 1)
    fail(heap, "f1")
    forget(heap)
    register(heap, 2)
    heap.pass_by(28 * DAY)
    would = heap.collector().preview()
    assert (would.versions, sorted(would.attempts)) == ([("films", 1)], ["f1-etl-1", "r1-etl-1", "r1-export-1"])
    assert (would.blobs, heap.rows.marks) == (3, {})
    done = heap.collector().sweep()
    assert (done.versions, done.attempts) == (would.versions, would.attempts)


@pytest.mark.parametrize(
    ("facts", "goes"),
    [
        ({}, True),
        ({"holders": ("previous",)}, True),
        ({"holders": ("previous", "tag champion")}, False),
        ({"holders": ("candidate",)}, False),
        ({"holders": ("rollout o1",)}, False),
        ({"learned_at": timedelta(days=27)}, True),
        ({"learned_at": timedelta(days=26)}, False),
        ({"left_at": timedelta(days=2)}, True),
        ({"left_at": timedelta(hours=2)}, False),
    ],
)
def test_a_version_that_knows_a_forgotten_user_goes_however_new_it_is(facts, goes) -> None:  # type: ignore[no-untyped-def]
    now = Heap().clock.now()
    times: dict[str, Any] = {name: now - value if isinstance(value, timedelta) else value for name, value in facts.items()}
    version = replace(VersionFacts(1, now - 9 * DAY, learned_at=now - 40 * DAY), **times)
    assert versions_to_go([version], RETENTION, now, now - 27 * DAY) == ((1,) if goes else ())
    assert versions_to_go([version], RETENTION, now) == ()


class HistoriesWithForgottenUsers(Histories):
    """Users are forgotten at any time, with a deadline that is over long before versions and outputs are old."""

    def __init__(self) -> None:
        super().__init__()
        self.heap.retention = Retention(versions=10, served=9 * DAY, runs=9 * DAY, grace=HOUR, forgotten=8 * HOUR)

    @rule()
    def forget(self) -> None:
        self.heap.rows.forgotten.append(self.heap.clock.now())

    def teardown(self) -> None:
        super().teardown()
        rows = self.heap.rows
        if rows.forgotten:
            needed_versions = {*rows.tagged.values(), *(rows.route.named() if rows.route else ())}
            assert {version.number for version in rows.versions} - set(rows.marks) == needed_versions


TestHistories = HistoriesWithForgottenUsers.TestCase
TestHistories.settings = settings(max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
