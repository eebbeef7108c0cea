"""Random histories of a store and its collector, held against an oracle."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.contracts.stage import File, digest_of
from shared.domain.retention import Sweep
from shared.domain.route import Route
from shared.ports import Version
from shared.testing.records import LINEAGE
from tests.support.garbage_collection import DAY, HOUR, Heap


def sweeps(heap: Heap) -> None:
    """Until nothing more can go: what a manifest in the trash names goes after it."""
    for _ in range(4):
        heap.pass_by(2 * DAY)  # the grace is no shorter than the stages of the runs under way may take
        heap.collector().sweep()


class Histories(RuleBasedStateMachine):
    """Runs that put, publish, end and register; routes and tags that move; collections, whole or cut off; and time."""

    def __init__(self) -> None:
        super().__init__()
        self.heap = Heap()
        self.count = 0
        self.published: dict[str, File] = {}

    @rule(content=st.integers(0, 3), inputs=st.booleans())
    def start(self, content: int, inputs: bool) -> None:
        self.count += 1
        run = f"r{self.count}"
        file = self.heap.put(f"content {content}")
        self.heap.rows.run(run)
        if inputs:
            self.heap.store.pin(f"{run}-etl-1", [file])
            self.heap.stamp()

    @rule(content=st.integers(0, 3), pick=st.integers(0, 9))
    def publish(self, content: int, pick: int) -> None:
        active = sorted(one.id for one in self.heap.rows.list())
        attempts = [f"{run}-export-1" for run in active if f"{run}-export-1" not in self.published]
        if attempts:
            attempt = attempts[pick % len(attempts)]
            file = self.heap.put(f"content {content}")
            self.heap.publish(attempt, file)
            self.published[attempt] = file

    @rule(pick=st.integers(0, 9), registers=st.booleans())
    def end(self, pick: int, registers: bool) -> None:
        active = sorted(one.id for one in self.heap.rows.list())
        if not active:
            return
        run = active[pick % len(active)]
        attempt = f"{run}-export-1"
        stages = [attempt] if attempt in self.published else []
        if stages and registers:
            files = {"model.onnx": self.published[attempt]}
            number = len(self.heap.rows.versions) + 1
            self.heap.rows.versions.append(Version("films", number, run, digest_of(files), files, {}, LINEAGE, None, self.heap.clock.now()))
        self.heap.rows.run(run, "registered" if stages and registers else "failed", stages)

    @rule(pick=st.integers(0, 9), tag=st.booleans())
    def name(self, pick: int, tag: bool) -> None:
        rows = self.heap.rows
        free = [one.number for one in rows.versions if one.number not in rows.marks]
        if not free:
            return
        number = free[pick % len(free)]
        if tag:
            rows.tagged["champion"] = number
        else:
            if rows.route is not None and rows.route.stable != number:
                rows.gone[rows.route.stable] = self.heap.clock.now()
                rows.before = rows.route.stable
            rows.gone.pop(number, None)
            rows.route = Route(number)

    @rule(hours=st.sampled_from([1, 2, 30, 80]))
    def time(self, hours: int) -> None:
        self.heap.pass_by(hours * HOUR)

    @rule(steps=st.integers(0, 60))
    def collect(self, steps: int) -> None:
        """It may die after any step."""
        under_way = self.heap.collector().steps(Sweep())
        for _ in zip(range(steps), under_way, strict=False):
            pass
        under_way.close()
        self.heap.stamp()

    @invariant()
    def nothing_that_is_needed_is_missing(self) -> None:
        rows = self.heap.rows
        kept = [one for one in rows.versions if one.number not in rows.marks]
        for one in kept:
            assert all(self.heap.has(file) for file in one.files.values()), f"version {one.number}"
            assert self.heap.store.manifest(f"{one.run}-export-1") is not None
        for attempt, file in self.published.items():
            if self.heap.store.manifest(attempt) is not None:
                assert self.heap.has(file), attempt
            assert rows.runs[attempt.split("-")[0]].status.state != "etl" or self.heap.store.manifest(attempt) is not None

    def teardown(self) -> None:
        """In the end everything goes that nobody needs, and nothing else."""
        rows = self.heap.rows
        for run in [one.id for one in rows.list()]:
            rows.run(run, "cancelled", [])
        self.heap.pass_by(9 * DAY)
        for _ in range(2):
            sweeps(self.heap)
        self.nothing_that_is_needed_is_missing()
        needed = {file.sha256 for one in rows.versions if one.number not in rows.marks for file in one.files.values()}
        assert self.heap.names("blobs") == needed
        assert self.heap.names("trash") == self.heap.names("pins") == set()
        self.heap.close()
