"""Many random streams of events, on each database: counted as a batch counts them. A few run in `tests/unit/ports`, too."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import settings
from sqlalchemy import Engine

from services.store.engine import open_engine
from shared.contracts.events import Impression, Interaction
from tests.servers.postgres_server import Server
from tests.support.event_streams import QUIET, count_exactly, streams, write_from_many_threads

pytestmark = [pytest.mark.requirement("G-05"), pytest.mark.requirement("G-13"), pytest.mark.timeout(1200)]


@pytest.fixture
def postgres_engine(postgres: Server) -> Iterator[Engine]:
    url = postgres.new_database()
    engine = open_engine(url)
    yield engine
    engine.dispose()
    postgres.drop_database(url)


@settings(max_examples=150, suppress_health_check=QUIET)
@streams
def test_a_stream_in_any_order_is_counted_exactly_in_sqlite(
    sqlite_engine: Engine, shows: list[Impression], done: list[Interaction], doubled: float, cuts: random.Random
) -> None:
    count_exactly(sqlite_engine, shows, done, doubled, cuts)


@settings(max_examples=150, suppress_health_check=QUIET)
@streams
def test_a_stream_in_any_order_is_counted_exactly_in_postgresql(
    postgres_engine: Engine, shows: list[Impression], done: list[Interaction], doubled: float, cuts: random.Random
) -> None:
    count_exactly(postgres_engine, shows, done, doubled, cuts)


def test_gateways_that_write_at_the_same_time_are_counted_exactly_in_sqlite(sqlite_engine: Engine) -> None:
    write_from_many_threads(sqlite_engine, 400, 600)


def test_gateways_that_write_at_the_same_time_are_counted_exactly_in_postgresql(postgres_engine: Engine) -> None:
    write_from_many_threads(postgres_engine, 400, 600)
