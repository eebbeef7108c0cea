"""A few random streams of events: shuffled, doubled, late and cut into calls anywhere, they are counted as a batch counts them.

`tests/contract/test_exact_events.py` draws many more.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from sqlalchemy import Engine

from shared.contracts.events import Impression, Interaction
from tests.support.event_streams import QUIET, count_exactly, streams, write_from_many_threads

pytestmark = [pytest.mark.requirement("G-05"), pytest.mark.requirement("G-13")]


@settings(max_examples=8, suppress_health_check=QUIET)
@streams
def test_a_stream_in_any_order_is_counted_exactly(
    engine: Engine, shows: list[Impression], done: list[Interaction], doubled: float, cuts: random.Random
) -> None:
    count_exactly(engine, shows, done, doubled, cuts)


def test_gateways_that_write_at_the_same_time_are_counted_exactly(engine: Engine) -> None:
    write_from_many_threads(engine, 80, 120)
