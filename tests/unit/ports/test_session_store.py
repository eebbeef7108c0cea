"""Sessions in SQL keep the port's promises; no secret is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from services.store.migrate import upgrade
from services.store.sessions import SqlSessions
from shared.domain.errors import NotFound, Unreadable
from shared.domain.sessions import IDLE, LIFE, OVERLAP, Identity, Session

pytestmark = pytest.mark.requirement("U-12")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def store(engine: Engine) -> SqlSessions:
    upgrade(engine)
    return SqlSessions(engine)


def session(id: str = "s1", at: datetime = NOW, **changes: object) -> Session:
    fields = {"token_id": "t1", "token_digest": "d"} | changes
    return Session(id, "first", at, at + LIFE, **fields)  # type: ignore[arg-type]


def test_a_session_is_stored_with_its_token_or_its_identity(store: SqlSessions) -> None:
    of_token = session()
    store.add(of_token, NOW)
    assert store.get("s1") == of_token
    identity = Identity("oidc-1", "ada", frozenset({"ml", "shop"}), NOW + LIFE)
    of_identity = session("s2", token_id=None, token_digest=None, identity=identity)
    store.add(of_identity, NOW)
    assert store.get("s2") == of_identity
    with pytest.raises(NotFound):
        store.get("s3")


def test_of_two_renewals_at_the_same_time_only_the_first_counts(store: SqlSessions) -> None:
    store.add(session(), NOW)
    assert store.renew("s1", "first", "second", NOW, NOW + MINUTE)
    assert not store.renew("s1", "first", "third", NOW, NOW + MINUTE)
    renewed = store.get("s1")
    assert (renewed.digest, renewed.previous_digest, renewed.previous_until) == ("second", "first", None)
    assert [renewed.accepts(digest, NOW + MINUTE) for digest in ("first", "second", "third")] == [True, True, False]


def test_the_previous_secret_ends_a_minute_after_the_first_use_of_the_new_one(store: SqlSessions) -> None:
    store.add(session(), NOW)
    store.renew("s1", "first", "second", NOW, NOW + 20 * MINUTE)
    store.confirm("s1", "other", NOW)  # not the newest secret
    assert store.get("s1").accepts("first", NOW + 40 * MINUTE), "the response with the new secret may have been lost"
    first_use = NOW + 40 * MINUTE
    store.confirm("s1", "second", first_use + OVERLAP)
    store.confirm("s1", "second", first_use + LIFE)  # a second use changes nothing
    used = store.get("s1")
    assert used.accepts("first", first_use + OVERLAP - timedelta(seconds=1))
    assert not used.accepts("first", first_use + OVERLAP)
    assert used.accepts("second", NOW + 20 * MINUTE + IDLE - timedelta(seconds=1))
    assert not used.accepts("second", NOW + 20 * MINUTE + IDLE)


def test_a_session_ends_for_good_and_expired_ones_are_deleted(store: SqlSessions, engine: Engine) -> None:
    store.add(session("s1"), NOW)
    store.add(session("s2"), NOW)
    store.end("s1")
    store.end("s1")
    with pytest.raises(NotFound):
        store.get("s1")
    assert not store.renew("s1", "first", "second", NOW, NOW)
    store.add(session("s3", NOW + LIFE), NOW + LIFE)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT id FROM sessions")).scalars().all() == ["s3"]


@pytest.mark.parametrize("identity", ["{", "[]", '{"name": "ada"}'])
def test_a_damaged_session_is_refused_in_one_line(store: SqlSessions, engine: Engine, identity: str) -> None:
    store.add(session(), NOW)
    with engine.begin() as connection:
        connection.execute(text("UPDATE sessions SET identity = :identity"), {"identity": identity})
    with pytest.raises(Unreadable, match=r"session s1 is damaged: .*; sign in again"):
        store.get("s1")
