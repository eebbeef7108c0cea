"""Interleavings of a publisher and the garbage collector, step by step; the collector may die after any step.

Age protects nothing here: the clock is so far ahead that everything is old. What is left is the order of pinning, looking, moving and
looking again, and that it is this order which protects is shown by breaking it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations_with_replacement

from services.control import garbage_collector
from services.control.garbage_collector import GarbageCollector, Sweep
from shared.contracts.stage import File, Manifest
from shared.domain.errors import NotFound
from tests.support.garbage_collection import Heap

Publisher = Callable[[Heap, Manifest], Iterator[str]]
Order = tuple[int, ...]


def as_it_is(heap: Heap, manifest: Manifest) -> Iterator[str]:
    return heap.store.publishing(manifest)


def puts_first(heap: Heap, manifest: Manifest) -> Iterator[str]:
    heap.put("content")
    yield from heap.store.publishing(manifest)


def without_a_pin(heap: Heap, manifest: Manifest) -> Iterator[str]:
    """How it was before there was a collector: look, then publish."""
    for file in manifest.files.values():
        if not heap.has(file):
            raise NotFound("gone")
        yield "looked"
    heap.store._create(heap.store._manifest(manifest.attempt), manifest.model_dump_json().encode(), manifest.attempt)
    yield "published"


def looks_before_it_pins(heap: Heap, manifest: Manifest) -> Iterator[str]:
    for file in manifest.files.values():
        if not heap.has(file):
            raise NotFound("gone")
        yield "looked"
    heap.store._write_pin(heap.store._pin(manifest.attempt, "x"), manifest.attempt, manifest.files.values())
    yield "pinned"
    heap.store._create(heap.store._manifest(manifest.attempt), manifest.model_dump_json().encode(), manifest.attempt)
    yield "published"


class Forgetful(GarbageCollector):
    """Doesn't look again after it has moved."""

    def _restore(self, shelf: garbage_collector.Shelf, done: Sweep) -> Iterator[str]:
        yield f"{shelf} moved"


class Backwards(GarbageCollector):
    """Reads manifests before pins: what goes from one to the other meanwhile is seen in neither."""

    def _needed(self, now):  # type: ignore[no-untyped-def]
        attempts = {one.name for one in self._attic.shelf("manifests")}
        yield "manifests read"
        pins = self._attic.pins()
        yield "pins read"
        return self._files(self._read(), pins, attempts, now)


@dataclass
class Case:
    heap: Heap
    file: File
    publisher: Iterator[str]
    collector: Iterator[str]
    outcome: str = "under way"

    def publish(self) -> None:
        """One step of the publisher."""
        if self.outcome == "under way":
            try:
                next(self.publisher)
            except StopIteration:
                self.outcome = "published"
            except NotFound:
                self.outcome = "refused"

    def sound(self) -> bool:
        """Published and there, or not published."""
        published = self.heap.store.manifest("r1-etl-1") is not None
        return published == (self.outcome == "published") and (not published or self.heap.has(self.file))


def case(publisher: Publisher, collector: type[GarbageCollector] = GarbageCollector, discarded: bool = False) -> Case:
    heap = Heap()
    file = heap.put("content")
    heap.rows.run("r1")
    if discarded:  # by an earlier sweep, long ago
        heap.clock.time += timedelta(days=10)
        heap.collector().sweep()
        assert not heap.has(file)
    heap.clock.time += timedelta(days=10)
    made = heap.collector()
    made.__class__ = collector
    return Case(heap, file, publisher(heap, heap.manifest("r1-etl-1", file)), made.steps(Sweep()))


def lengths(make: Callable[[], Case]) -> tuple[int, int]:
    """How many steps each takes at most: alone, or after the other; one more for good measure."""
    longest = [0, 0]
    for first in (0, 1):
        one = make()
        taken = [0, 0]
        for who in (first, 1 - first):
            if who:
                taken[1] = sum(1 for _ in one.collector)
            else:
                while one.outcome == "under way":
                    one.publish()
                    taken[0] += 1
        longest = [max(pair) for pair in zip(longest, taken, strict=True)]
        one.heap.close()
    return longest[0], longest[1] + 2


def orders(make: Callable[[], Case]) -> list[Order]:
    """Each of the publisher's steps comes after so many of the collector's."""
    publishing, collecting = lengths(make)
    return list(combinations_with_replacement(range(collecting + 1), publishing))


def unsound(make: Callable[[], Case], tried: Iterable[Order], dies: bool) -> Iterator[Order]:
    """The orders whose end is unsound."""
    for places in tried:
        one, done = make(), 0
        for place in places:
            while done < place and next(one.collector, None) is not None:
                done += 1
            one.publish()
        if not dies:
            for _ in one.collector:
                pass
        while one.outcome == "under way":
            one.publish()
        if dies:  # after its last step before the publisher's last one; the next collector takes over
            one.heap.collector().sweep()
        sound = one.sound()
        one.heap.close()
        if not sound:
            yield places
