"""A gateway whose database stops, or no longer answers at all: on a real PostgreSQL, with the real stores of routes and events."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from sqlalchemy import text

from services.eventlog.sql import SqlEventLog
from services.gateway import Gateway, Stores
from services.index.opening import OpenIndexes
from services.store.catalogue import SqlCatalogue
from services.store.engine import open_engine
from services.store.routes import SqlRoutes
from services.store.shadow_totals import SqlShadowTotals
from shared.domain.entity_ids import IdHash
from shared.domain.route import Route
from shared.testing.waiting import PATIENCE, wait_for
from tests.servers.postgres_server import postgres_server
from tests.support.gateway_world import World


@pytest.fixture
def world():
    made = World()
    made.add_version(1)
    made.add_version(2)
    yield made
    made.close()


@pytest.fixture
def server():
    with postgres_server() as made:
        yield made


@pytest.fixture
def engine(server):
    made = open_engine(server.new_database())
    yield made
    made.dispose()


@pytest.fixture
def gateway(world, engine):
    routes, mirrors = SqlRoutes(engine), SqlShadowTotals(engine)
    routes.put("m", Route(1, 2, 0.5, "r1", 0), world.clock.now(), "ada", "a test")
    stores = Stores(
        routes, world, world.artifacts, world, SqlEventLog(engine), mirrors, SqlCatalogue(engine), OpenIndexes(), IdHash(b"test")
    )
    made = Gateway(stores, world, world.clock, "g1")
    made.refresh()
    yield made
    made.close()


def ask(gateway, count):
    """Answers to so many users at once; a failed test where they don't come."""
    pool = ThreadPoolExecutor(4)
    try:
        asked = [pool.submit(gateway.recommend, "m", 1 + n % 5) for n in range(count)]
        return [one.result(PATIENCE) for one in asked]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def written(engine):
    with engine.connect() as connection:
        return set(connection.execute(text("SELECT request_id FROM impressions")).scalars())


@pytest.mark.requirement("C-05")
def test_a_database_that_stops_costs_no_answer_and_no_impression(server, engine, world, gateway):
    answers = ask(gateway, 5)
    assert written(engine) == {one.request_id for one in answers}
    server.stop(signal.SIGQUIT)
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    answers += ask(gateway, 40)
    assert {one.version for one in answers} == {1, 2}
    assert all(one.fallback is None for one in answers)
    server.start()
    wait_for(lambda: not gateway._journal.behind)
    assert written(engine) == {one.request_id for one in answers}
    world.clock.pass_by(seconds=1)
    gateway.refresh()
    assert gateway._loader.fault("*") is None


@pytest.mark.requirement("C-05")
def test_a_database_that_hangs_holds_up_no_answer_for_long(server, engine, world, gateway):
    """Its processes are halted, so that nothing is refused and nothing comes: while they are, all answers are given."""
    answers = ask(gateway, 5)
    postmaster = psutil.Process(server._process.pid)
    halted = [postmaster, *postmaster.children(recursive=True)]
    for one in halted:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        answers += ask(gateway, 40)
    finally:
        for one in halted:
            os.kill(one.pid, signal.SIGCONT)
    assert {one.version for one in answers} == {1, 2}
    wait_for(lambda: not gateway._journal.behind)
    wait_for(lambda: written(engine) == {one.request_id for one in answers})
    again = gateway.recommend("m", 1)
    assert again.request_id in written(engine)
