"""A publisher and the garbage collector in some orders of their steps; `tests/crash` plays all of them.

Age protects nothing here: the clock is so far ahead that everything is old. What is left is the order of pinning, looking, moving and
looking again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement

import pytest

from shared.domain.errors import Conflict
from tests.support.collector_interleavings import Publisher, as_it_is, case, lengths, puts_first, unsound
from tests.support.garbage_collection import Heap

pytestmark = pytest.mark.requirement("G-11")


@pytest.mark.parametrize(
    ("publisher", "discarded", "dies"),
    [(as_it_is, False, False), (as_it_is, False, True), (puts_first, True, False)],
    ids=["old content", "old content and a death", "content that is in the trash"],
)
def test_a_published_manifest_has_its_files(publisher: Publisher, discarded: bool, dies: bool) -> None:
    """Where the publisher's steps before a cut come at one place of the collector's, and the others at a later one."""
    make = partial(case, publisher, discarded=discarded)
    publishing, collecting = lengths(make)
    tried = [
        (first,) * cut + (last,) * (publishing - cut)
        for cut in range(1, publishing)
        for first in range(0, collecting + 1, 3)
        for last in range(first, collecting + 1, 2)
    ]
    assert list(unsound(make, tried, dies)) == []


def test_of_two_who_publish_one_attempt_one_succeeds_in_any_order() -> None:
    for places in combinations_with_replacement(range(5), 4):
        heap = Heap()
        file = heap.put("content")
        first, second = (heap.store.publishing(heap.manifest("r1-etl-1", file)) for _ in range(2))
        refused: list[str] = []

        def step(who: Iterator[str], name: str, refused: list[str] = refused) -> None:
            try:
                next(who, None)
            except Conflict:
                refused.append(name)

        done = 0
        for place in places:
            while done < place:
                step(first, "first")
                done += 1
            step(second, "second")
        for who, name in ((first, "first"), (second, "second")):
            for _ in range(5):
                step(who, name)
        assert len(refused) == 1
        assert heap.names("pins") == set()
        heap.close()
