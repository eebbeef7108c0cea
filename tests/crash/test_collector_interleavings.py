"""A publisher and the garbage collector in every order of their steps; the collector may die after any of them.

`tests/unit/control/test_collect_interleaved.py` plays some of the orders at each change.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from services.control.garbage_collector import GarbageCollector
from tests.support.collection_histories import Histories
from tests.support.collector_interleavings import (
    Backwards,
    Forgetful,
    Publisher,
    as_it_is,
    case,
    looks_before_it_pins,
    orders,
    puts_first,
    unsound,
    without_a_pin,
)

pytestmark = [pytest.mark.requirement("G-11"), pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("publisher", "discarded", "dies"),
    [(as_it_is, False, False), (as_it_is, False, True), (puts_first, True, False)],
    ids=["old content", "old content and a death", "content that is in the trash"],
)
def test_no_order_of_steps_leaves_a_published_manifest_without_its_files(publisher: Publisher, discarded: bool, dies: bool) -> None:
    make = partial(case, publisher, discarded=discarded)
    assert list(unsound(make, orders(make), dies)) == []


@pytest.mark.parametrize("publisher", [without_a_pin, looks_before_it_pins])
def test_a_publisher_in_another_order_is_found_out(publisher: Publisher) -> None:
    make = partial(case, publisher)
    assert any(unsound(make, orders(make), dies=False))


@pytest.mark.parametrize("collector", [Forgetful, Backwards])
def test_a_collector_in_another_order_is_found_out(collector: type[GarbageCollector]) -> None:
    make = partial(case, as_it_is, collector)
    assert any(unsound(make, orders(make), dies=False))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
