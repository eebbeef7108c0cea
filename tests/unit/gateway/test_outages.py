"""An outage is logged once when it begins and once when it is over, however many requests meet it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from services.api.token_cache import TokenCache
from services.featurestore.sql import SqlFeatureStore
from services.gateway.impression_writer import ImpressionWriter
from services.gateway.user_features import UserFeatures
from shared.domain.access import Role, Token
from shared.domain.errors import Unavailable
from shared.ports import FeatureRows
from shared.telemetry.outages import QUIET, Outages
from shared.testing.event_suite import shown
from tests.support.gateway_world import Clock
from tests.unit.gateway.test_user_features import opened, row, told, version

pytestmark = pytest.mark.requirement("C-05")


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines of these levels, as (level, message)."""
    caplog.set_level(logging.INFO)

    def by_prefix(prefix: str) -> list[tuple[str, str]]:
        return [(one.levelname, one.getMessage()) for one in caplog.records if one.getMessage().startswith(prefix)]

    return by_prefix


class SlowStore(SqlFeatureStore):
    """Every second read fails, as those of a store whose reads take about as long as the deadline."""

    fails = True
    asked = 0

    def read(self, *arguments: Any) -> FeatureRows:
        self.asked += 1
        if self.fails and self.asked % 2:
            raise Unavailable("Redis doesn't answer")
        return super().read(*arguments)


def test_a_slow_feature_store_is_logged_once_and_once_when_it_has_recovered(
    world: Any, tmp_path: Path, lines: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    version(world, tmp_path)
    store = world.features = SlowStore(world.engine)
    store.write("m", "user", [row(1, age=7)])
    clock = Time()
    monkeypatch.setattr("services.gateway.gateway.UserFeatures", lambda store: UserFeatures(store, now=clock))
    gateway = opened(world)
    for _ in range(50):
        clock.now += 1.1  # nothing is cached any more
        told(world, gateway, 1)
    assert store.asked >= 50
    assert lines("feature store") == [
        ("ERROR", "feature store: unavailable, the versions' own values are used reason=Redis doesn't answer")
    ]
    store.fails = False
    for _ in range(20):
        clock.now += 1.1
        assert told(world, gateway, 1)[0] == 7
    assert lines("feature store")[1:] == [("INFO", "feature store: recovered")]


class SlowLog:
    """Every second write fails."""

    def __init__(self) -> None:
        self.writes = 0
        self.stored: list[Any] = []

    def impressions(self, impressions: Any) -> None:
        self.writes += 1
        if self.writes % 2:
            raise Unavailable("nobody is there")
        self.stored += impressions


def test_a_slow_event_log_is_logged_once(lines: Any) -> None:
    log: Any = SlowLog()
    journal = ImpressionWriter(log, patience=5, pause=0.001)
    for n in range(20):
        journal.write(shown(f"a{n}"))
    journal.close()
    assert len(log.stored) == 20
    assert lines("event log") == [("ERROR", "event log: unavailable, answers go out and their impressions wait reason=nobody is there")]


class SlowTokens:
    """Every second look-up fails."""

    looks = 0

    def get(self, id: str) -> Token:
        self.looks += 1
        if self.looks > 1 and self.looks % 2:
            raise Unavailable("the database doesn't answer")
        return Token(id, "shop", "", Role.CLIENT, None, Clock().now(), "owner")


def test_a_slow_store_of_tokens_is_logged_once(lines: Any) -> None:
    tokens: Any = SlowTokens()
    cache = TokenCache(tokens, Clock(), patience=5, pause=0)
    for _ in range(20):
        assert cache.get("t1").name == "shop"
    assert lines("token lookup") == [("WARNING", "token lookup: failed, cache in use error=the database doesn't answer")]


@pytest.mark.parametrize(("quiet", "ends"), [(0.0, 3), (QUIET, 1)])
def test_an_outage_ends_with_the_first_success_after_the_quiet_time(quiet: float, ends: int, lines: Any) -> None:
    clock = Time()
    outages = Outages(logging.getLogger("test"), quiet, clock)
    for _ in range(3):
        outages.fail("a", "outage: begins %s", "a")
        outages.fail("b", "outage: begins %s", "b")
        outages.fail("a", "outage: begins %s", "a")
        outages.succeed("a", "outage: ends %s", "a")
    clock.now += QUIET
    outages.succeed("a", "outage: ends %s", "a")
    outages.succeed("never failed", "outage: ends")
    assert lines("outage: begins b") == [("ERROR", "outage: begins b")]
    assert len(lines("outage: begins a")) == len(lines("outage: ends a")) == ends
    assert lines("outage: ends b") == []


def test_a_bug_is_logged_with_its_traceback_and_a_fault_of_the_platform_without(caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages(logging.getLogger("test"))
    outages.fail("a", "a", error=Unavailable("away"))
    outages.fail("b", "b", error=ValueError("a bug"))
    assert [one.exc_info is not None and one.exc_info[1] is not None for one in caplog.records] == [False, True]
