"""Feature stores and their history keep their ports' promises: in SQL, in Redis, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from services.featurestore.history import SqlFeatureHistory
from services.featurestore.redis import RedisFeatureStore
from services.featurestore.sql import SqlFeatureStore
from services.store.engine import open_engine
from shared.domain.errors import Unavailable
from shared.testing.fake_features import FakeFeatureHistory, FakeFeatureStore
from shared.testing.feature_suite import DAY, NOW, FeatureHistorySuite, FeatureStoreSuite, row
from tests.servers.redis_server import RedisServer

PASSWORD = "correct-horse"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", PASSWORD)
    server.start()
    yield server
    server.kill()


@pytest.mark.requirement("G-08")
class TestSqlFeatureStore(FeatureStoreSuite):
    @pytest.fixture
    def store(self, engine: Engine) -> SqlFeatureStore:
        return SqlFeatureStore(engine)

    @pytest.mark.parametrize("text", ["{", "[]", "7"])
    def test_a_damaged_row_is_absent_and_hides_no_other(
        self, engine: Engine, store: SqlFeatureStore, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.write("films", "user", [row(1, a=1), row(2, a=2)])
        with engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE feature_values SET body = '{text}' WHERE entity = 1")
        assert list(store.read("films", {"user": None}, [1, 2], NOW).rows) == [("user", 2)]
        assert "view user, key 1 can't be read and count as absent" in caplog.text
        store.write("films", "user", [row(1, NOW + DAY, a=3)])
        assert len(store.read("films", {"user": None}, [1, 2], NOW + DAY).rows) == 2


@pytest.mark.requirement("G-08")
class TestRedisFeatureStore(FeatureStoreSuite):
    @pytest.fixture
    def store(self, redis: RedisServer) -> Iterator[RedisFeatureStore]:
        made = RedisFeatureStore(redis.url)
        yield made
        made.close()

    def test_a_damaged_row_is_absent_and_is_written_over(self, redis: RedisServer, store: RedisFeatureStore) -> None:
        store.write("films", "user", [row(1, a=1), row(2, a=2)])
        store._redis.hset("eyas:features:films:user", "1", "nonsense")
        assert list(store.read("films", {"user": None}, [1, 2], NOW).rows) == [("user", 2)]
        assert store.write("films", "user", [row(1, a=1)]) == 1
        assert len(store.read("films", {"user": None}, [1, 2], NOW).rows) == 2

    def test_one_that_was_never_there_is_unavailable_when_it_is_asked(self, redis: RedisServer) -> None:
        redis.kill()
        store = RedisFeatureStore(redis.url, patience=0.2)
        with pytest.raises(Unavailable, match="doesn't answer as it should"):
            store.marks()
        store.close()

    def test_one_that_is_away_or_hangs_is_unavailable_and_found_again(self, redis: RedisServer) -> None:
        store = RedisFeatureStore(redis.url, patience=0.2)
        store.write("films", "user", [row(1, a=1)])
        redis.stand_still()
        with pytest.raises(Unavailable, match="doesn't answer as it should") as said:
            store.read("films", {"user": None}, [1], NOW)
        assert PASSWORD not in str(said.value)
        redis.go_on()
        redis.kill()
        with pytest.raises(Unavailable, match="doesn't answer as it should"):
            store.write("films", "user", [row(1, a=2)])
        redis.start()
        assert store.marks() == {}, "it lost the rows, and the mark with them"
        assert store.write("films", "user", [row(1, NOW - timedelta(days=1), a=1)]) == 1
        store.close()


@pytest.mark.requirement("G-08")
class TestFakeFeatureStore(FeatureStoreSuite):
    @pytest.fixture
    def store(self) -> FakeFeatureStore:
        return FakeFeatureStore()


@pytest.mark.requirement("G-08")
class TestSqlFeatureHistory(FeatureHistorySuite):
    @pytest.fixture
    def history(self, engine: Engine) -> SqlFeatureHistory:
        return SqlFeatureHistory(engine)


@pytest.mark.requirement("G-08")
class TestFakeFeatureHistory(FeatureHistorySuite):
    @pytest.fixture
    def history(self) -> FakeFeatureHistory:
        return FakeFeatureHistory()
