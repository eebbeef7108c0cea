"""An embedded platform that nobody uses asks its database nothing, and sees a change at the next pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine, event

from services.control import worker_loop as loops
from services.home import Home
from services.settings import Settings
from services.store.engine import open_engine, sqlite_url
from services.store.recommenders import SqlRecommenders
from services.wiring import parts
from services.wiring.platform import Platform
from shared.contracts.spec import RecommenderSpec
from shared.testing.fakes import FakeExecutor, FakeModelServer
from tests.support.platform_world import quick_spec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "the-first-token-of-a-platform-that-is-idle"


class Server(FakeModelServer):
    def ensure_running(self) -> bool:
        return False

    def vouch(self) -> None:
        pass


class Now:
    """The clock of the steps."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Idle:
    """A platform whose loops are stepped by hand, and what its database is asked meanwhile."""

    def __init__(self, platform: Platform, database: Path, now: Now) -> None:
        self.platform = platform
        self.database = database
        self.now = now
        self.statements: list[str] = []
        event.listen(Engine, "before_cursor_execute", self._count)

    def _count(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        self.statements.append(statement)

    def close(self) -> None:
        event.remove(Engine, "before_cursor_execute", self._count)

    def passes(self, count: int) -> list[str]:
        """The statements of so many passes of each loop that has nothing but steps that wait for a change."""
        self.statements.clear()
        for _ in range(count):
            for one in self.platform._loops:
                for step in one._steps:
                    if isinstance(step, loops.OnChange):
                        step()
        return list(self.statements)

    def settle(self) -> None:
        for _ in range(3):
            self.now.seconds += 2 * loops.SETTLE
            self.passes(3)


def movies(idle: Idle) -> RecommenderSpec:
    return RecommenderSpec.model_validate(quick_spec(idle.database.parent, name="movies"))


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    monkeypatch.setattr(parts, "executor", lambda *_: FakeExecutor())
    monkeypatch.setattr(parts, "model_server", lambda *_: Server(lambda _unit, feed: np.zeros(len(feed), np.float32)))
    now = Now()
    monkeypatch.setattr(loops.OnChange.__init__, "__defaults__", (*loops.OnChange.__init__.__defaults__[:-1], now))
    with ExitStack() as undo:
        home = Home(tmp_path / "home")
        home.open()
        undo.callback(home.close)
        settings = Settings.read({"home": home.folder, "data_roots": [str(tmp_path)], "collect_every": 0, "compact_every": 0})
        found = Idle(Platform(settings, home, TOKEN, (str(tmp_path),), undo), home.database, now)
        undo.callback(found.close)
        yield found
        found.platform._loops.clear()  # none of them was started


def test_passes_over_an_unchanged_platform_send_no_statement(idle: Idle) -> None:
    assert idle.passes(1)
    idle.settle()
    assert idle.passes(50) == []
    resting = {one._thread.name for one in idle.platform._loops if one.rest() > 0}
    assert {"gateway", "runs", "retrainers", "features", "monitor"} <= resting


def test_a_change_of_this_process_is_seen_by_every_loop_at_its_next_pass(idle: Idle) -> None:
    idle.settle()
    assert idle.platform.parts is not None
    idle.platform.parts.recommenders.put(movies(idle), NOW, "test")
    assert all(one.rest() == 0 for one in idle.platform._loops)
    idle.passes(1)
    assert [row.id for row in idle.platform.parts.retrainers.queued()] == ["movies"]


def test_a_change_of_another_process_is_seen_by_the_slow_poll(idle: Idle) -> None:
    idle.settle()
    other = open_engine(sqlite_url(idle.database))
    SqlRecommenders(other).put(movies(idle), NOW, "test")
    other.dispose()
    assert idle.platform.parts is not None
    idle.passes(5)
    assert not idle.platform.parts.retrainers.queued(), "nobody else may write to the home of a platform"
    idle.now.seconds += 15
    idle.passes(1)
    assert [row.id for row in idle.platform.parts.retrainers.queued()] == ["movies"]


def test_readiness_of_each_part_is_exported_without_a_statement(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is away is told by the last answer of /readyz, for a minute."""
    platform = idle.platform
    monkeypatch.setattr(platform, "_loops", [])
    platform.start()

    def ready() -> list[float | None]:
        return [REGISTRY.get_sample_value("eyas_ready", {"part": part}) for part in ("control", "gateway")]

    assert ready() == [0, 0]
    monkeypatch.setattr(platform, "_waiting", [])
    idle.statements.clear()
    assert ready() == [1, 1]
    assert idle.statements == []
    with monkeypatch.context() as patched:
        patched.setattr(platform, "_check_database", lambda: ["the database doesn't answer"])
        assert platform.door.ready() == ["the database doesn't answer"]
    assert ready() == [0, 0]
    platform._database_failed_at -= 61
    assert ready() == [1, 1]
    platform.leaves(lambda: True)
    assert ready() == [0, 0]
