"""The feature store in a real Redis keeps the promises of its port, also while the server is away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from services.featurestore.redis import RedisFeatureStore
from shared.domain.errors import Unavailable
from shared.testing.feature_suite import NOW, FeatureStoreSuite, row
from tests.servers.redis_server import RedisServer

PASSWORD = "correct-horse"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", PASSWORD)
    server.start()
    yield server
    server.kill()


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
        with pytest.raises(Unavailable, match="feature store: Redis fails: "):
            store.marks()
        store.close()

    def test_one_that_is_away_or_hangs_is_unavailable_and_found_again(self, redis: RedisServer) -> None:
        store = RedisFeatureStore(redis.url, patience=0.2)
        store.write("films", "user", [row(1, a=1)])
        redis.stand_still()
        with pytest.raises(Unavailable, match="feature store: Redis fails: ") as refusal:
            store.read("films", {"user": None}, [1], NOW)
        assert PASSWORD not in str(refusal.value)
        redis.go_on()
        redis.kill()
        with pytest.raises(Unavailable, match="feature store: Redis fails: "):
            store.write("films", "user", [row(1, a=2)])
        redis.start()
        assert store.marks() == {}, "it lost the rows, and the mark with them"
        assert store.write("films", "user", [row(1, NOW - timedelta(days=1), a=1)]) == 1
        store.close()
