"""Feature store in Redis, for gateways that read a user's values for each answer: one hash per view, one field per key.

A script keeps the row that counts more, so that the order of writers doesn't matter; a read of several views and many keys is one round
trip. If Redis loses its data, the marks are lost with the rows, and the control plane loads the rows again. Needs one server, or one
address of the current primary: in a Redis Cluster the keys of a recommender would be on different servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from shared.domain.errors import Unavailable, Unsupported
from shared.domain.feature_values import StoredRow, check_place, instant, is_over, moment, newest, read_row
from shared.ports import FeatureRows

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = 2.0
"""Timeout of a call in seconds."""
_AT_ONCE = 1_000
_MARKS = "eyas:features"
# Arguments of each row: key, time, digest, body. A stored value begins with its time and its digest.
_WRITE = """
redis.call('HSETNX', KEYS[2], ARGV[1], 0)
local stand = 0
for n = 2, #ARGV, 4 do
  local old = redis.call('HGET', KEYS[1], ARGV[n])
  local keep = false
  if old then
    local at, digest = string.match(old, '^(-?%d+) (%x+) ')
    if at then
      local was, is = tonumber(at), tonumber(ARGV[n + 1])
      keep = was > is or (was == is and digest >= ARGV[n + 2])
    end
  end
  if not keep then
    redis.call('HSET', KEYS[1], ARGV[n], ARGV[n + 1] .. ' ' .. ARGV[n + 2] .. ' ' .. ARGV[n + 3])
    stand = stand + 1
  end
end
return stand
"""


class RedisFeatureStore:
    """Feature store in Redis. Several threads may use one instance at the same time."""

    def __init__(self, url: str, patience: float = PATIENCE) -> None:
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise Unsupported("features in Redis need the Redis client: install it with pip install 'eyas[cluster]'") from None
        self._errors = redis.RedisError
        again = Retry(NoBackoff(), 1)  # for a connection that the server has closed
        limits: dict[str, Any] = {"socket_timeout": patience, "socket_connect_timeout": patience, "retry": again}
        self._redis = redis.Redis.from_url(url, client_name="eyas", **limits)
        self._write = self._redis.register_script(_WRITE)

    def close(self) -> None:
        self._redis.close()

    def write(self, recommender: str, view: str, rows: Sequence[StoredRow]) -> int:
        stand = 0
        standing = list(newest(rows).values())
        for start in range(0, max(1, len(standing)), _AT_ONCE):
            arguments: list[Any] = [_field(recommender, view)]
            for row in standing[start : start + _AT_ONCE]:
                arguments += [row.key, instant(row.at), row.digest, row.text]
            keys = [_place(recommender, view), _MARKS]
            stand += int(self._do(lambda keys=keys, arguments=arguments: self._write(keys, arguments)))  # type: ignore[misc]
        return stand

    def read(self, recommender: str, views: Mapping[str, timedelta | None], keys: Collection[int], now: datetime) -> FeatureRows:
        rows: dict[tuple[str, int], StoredRow] = {}
        expired: dict[tuple[str, int], datetime] = {}
        if not views or not keys:
            return FeatureRows(rows, expired)
        wanted = sorted(set(keys))

        def ask() -> list[list[bytes | None]]:
            together = self._redis.pipeline(transaction=False)
            for view in views:
                together.hmget(_place(recommender, view), [str(key) for key in wanted])
            responses: list[list[bytes | None]] = together.execute()
            return responses

        for view, values in zip(views, self._do(ask), strict=True):
            for key, value in zip(wanted, values, strict=True):
                row = None if value is None else _sound(recommender, view, key, value)
                if row is not None and is_over(row.at, views[view], now):
                    expired[view, key] = row.at
                elif row is not None and row.at <= now:
                    rows[view, key] = row
        return FeatureRows(rows, expired)

    def mark(self, recommender: str, view: str, count: int) -> None:
        self._do(lambda: self._redis.hset(_MARKS, _field(recommender, view), str(count)))

    def marks(self) -> Mapping[tuple[str, str], int]:
        counts: Mapping[bytes, bytes] = self._do(lambda: self._redis.hgetall(_MARKS))  # type: ignore[arg-type,return-value]
        return {_read_field(name): int(count) for name, count in counts.items()}

    def forget(self, recommender: str, view: str) -> None:
        self._do(lambda: self._redis.unlink(_place(recommender, view)))
        self._do(lambda: self._redis.hdel(_MARKS, _field(recommender, view)))

    def forget_key(self, recommender: str, view: str, key: int) -> int:
        return int(self._do(lambda: self._redis.hdel(_place(recommender, view), str(key))))

    def keys(self, recommender: str, view: str) -> Collection[int]:
        names: Collection[bytes] = self._do(lambda: self._redis.hkeys(_place(recommender, view)))  # type: ignore[arg-type,return-value]
        return [int(name) for name in names]

    def _do(self, work: Callable[[], T]) -> T:
        """Turns Redis errors into Unavailable without the URL, which may hold a password."""
        try:
            return work()
        except self._errors as error:
            raise Unavailable(f"feature store: Redis fails: {type(error).__name__}") from None


def _place(recommender: str, view: str) -> str:
    return f"{_MARKS}:{_field(recommender, view)}"


def _field(recommender: str, view: str) -> str:
    """Quotes the name, so that no recommender can reach another recommender's rows."""
    return f"{quote(recommender, safe='')}:{check_place(view)}"


def _read_field(name: bytes) -> tuple[str, str]:
    recommender, _, view = name.decode().partition(":")
    return unquote(recommender), view


def _sound(recommender: str, view: str, key: int, value: bytes) -> StoredRow | None:
    try:
        at, _, text = value.decode().split(" ", 2)
        return read_row(key, moment(int(at)), text)
    except (ValueError, OverflowError, RecursionError) as error:
        log.error("feature values: unreadable, count as absent recommender=%s view=%s key=%d error=%s", recommender, view, key, error)
        return None
