"""Sessions of the console in SQL: digests of their secrets, never the secrets."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Engine, delete, insert, select, update

from services.store.columns import sound
from services.store.tables import sessions
from shared.domain.errors import Unreadable, no_such
from shared.domain.sessions import Identity, Session


class SqlSessions:
    """Implements SessionStore."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reads = engine.execution_options(read_only=True)

    def add(self, session: Session, now: datetime) -> None:
        identity = session.identity and {
            "subject_id": session.identity.subject_id,
            "name": session.identity.name,
            "groups": sorted(session.identity.groups),
        }
        with self._engine.begin() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
            connection.execute(insert(sessions).values({**session.__dict__, "identity": identity}))

    def get(self, id: str) -> Session:
        with self._reads.connect() as connection:
            row = connection.execute(select(sessions).where(sessions.c.id == id)).one_or_none()
        if row is None:
            raise no_such("session", id)
        try:
            fields = dict(sound(row)._mapping)
            if fields["identity"] is not None:
                stored = fields["identity"]
                fields["identity"] = Identity(stored["subject_id"], stored["name"], frozenset(stored["groups"]), row.expires_at)
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"session {id} is damaged: {error}; sign in again") from None
        return Session(**fields)

    def renew(self, id: str, used: str, digest: str, last_renewal: datetime, now: datetime) -> bool:
        values = {"digest": digest, "renewed_at": now, "previous_digest": used, "previous_until": None}
        with self._engine.begin() as connection:
            renewed = update(sessions).where(sessions.c.id == id, sessions.c.renewed_at == last_renewal).values(values)
            return connection.execute(renewed).rowcount == 1

    def confirm(self, id: str, digest: str, until: datetime) -> None:
        first_use = sessions.c.previous_digest.is_not(None) & sessions.c.previous_until.is_(None)
        with self._engine.begin() as connection:
            confirmed = update(sessions).where(sessions.c.id == id, sessions.c.digest == digest, first_use)
            connection.execute(confirmed.values(previous_until=until))

    def end_all(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(sessions))

    def end_of(self, token_id: str) -> int:
        with self._engine.begin() as connection:
            return connection.execute(delete(sessions).where(sessions.c.token_id == token_id)).rowcount

    def end(self, id: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(sessions).where(sessions.c.id == id))
