"""Backup and restore of a platform's database and artifacts, with the platform's own settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from services.control.forgetting import Forgetting
from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.tables import forgotten_users
from services.eventlog.tables import metadata as event_tables
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.redis import RedisFeatureStore
from services.featurestore.sql import SqlFeatureStore
from services.featurestore.tables import metadata as feature_tables
from services.home import Home
from services.settings import Settings
from services.store.clock import DatabaseClock
from services.store.dumps import check_loadable, dump, load
from services.store.engine import missing_file, open_engine, sqlite_url
from services.store.installation import id_hash, installation_id
from services.store.migrate import check_usable, is_current, renew_readable_by, upgrade
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.sessions import SqlSessions
from services.store.tables import metadata as state_tables
from services.store.tables import sessions
from shared.artifacts.backups import BackupStore
from shared.contracts.backup import Backup, DatabaseKind, ForgottenLedger, Tables
from shared.contracts.stage import File
from shared.domain.errors import EyasError, Invalid, NotFound, Unavailable
from shared.domain.forgetting import ForgottenUser, UserDigest
from shared.ports import FeatureStore

Tell = Callable[[str], None]
TABLES = tuple(table.name for metadata in (state_tables, event_tables, feature_tables) for table in metadata.sorted_tables)


@dataclass(frozen=True)
class BackupResult:
    backup: Backup
    copied_bytes: int
    pruned: tuple[str, ...] = ()
    forgotten_again: int = 0
    """Users who were forgotten after a restored backup, and are forgotten again."""


def back_up(options: Mapping[str, Any], to: str, keep: int | None, tell: Tell) -> BackupResult:
    """Makes a backup while the platform runs, or while it is stopped. `keep`: deletes older backups than this number of newest ones."""
    state = _State(options)
    if missing_file(state.database) is not None:
        raise NotFound(
            f"database {missing_file(state.database)} is missing or empty: there is nothing to back up; name the platform's --home"
        )
    _check_apart(to, state.artifacts)
    store = BackupStore(to, tell)
    with _readable(to):
        backup = store.take(state.installation(), state.artifacts, state.dump, state.version_files, state.forgotten)
        pruned = store.prune(keep, datetime.now(UTC)) if keep is not None else ()
    return BackupResult(backup, store.copied_bytes, tuple(pruned))


def restore(options: Mapping[str, Any], source: str, name: str | None, artifacts_only: bool, tell: Tell) -> BackupResult:
    """Restores a backup into a database without data, and forgets again who was forgotten after it. No platform may run on the home
    meanwhile."""
    state = _State(options)
    _check_apart(source, state.artifacts)
    store = BackupStore(source, tell)
    with _readable(source):
        backup = store.open(name)
        if artifacts_only:  # the platform may run: content is named by its digest
            store.restore(backup, state.artifacts, None)
            state.check_archives_again()
        else:
            with state.locked():
                check_usable(backup.database.tables)
                check_loadable(state.database, state.password, TABLES, backup.database.kind)
                ledger = store.ledger(backup.installation)
                store.restore(backup, state.artifacts, lambda path: state.load(path, backup.database.kind, ledger))
    return BackupResult(backup, store.copied_bytes, forgotten_again=state.forgotten_again)


class _State:
    """The state of a platform, where the settings say that it is."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        os.umask(0o077)  # only the owner may read copies of the database
        settings = Settings.read({name: value for name, value in options.items() if value is not None})
        self._home = Home(settings.home)
        self.artifacts = settings.artifacts_url or str(self._home.artifacts)
        self.database = settings.database_url.get_secret_value() if settings.database_url else sqlite_url(self._home.database)
        self.password = settings.password()
        self._features = settings.features.get_secret_value()
        self.forgotten_again = 0

    def dump(self, path: Path) -> tuple[DatabaseKind, Tables]:
        return dump(self.database, self.password, TABLES, path)

    def load(self, path: Path, kind: DatabaseKind, ledger: ForgottenLedger) -> None:
        """Loads a dump and forgets the users of the ledger. A SQLite dump is a database: users are forgotten in it before it is loaded.
        All sessions end, because some may have been ended after the backup."""
        if kind == "sqlite":
            self._forget_again(sqlite_url(path), None, ledger, "nothing is restored")
            load(self.database, self.password, TABLES, path)
        else:
            load(self.database, self.password, TABLES, path)
            todo = "start no platform: drop the restored database, and restore into an empty one"
            self._forget_again(self.database, self.password, ledger, todo)
        with self._engine() as engine:
            if inspect(engine).has_table(sessions.name):
                SqlSessions(engine).end_all()

    def _forget_again(self, url: str, password: str | None, ledger: ForgottenLedger, todo: str) -> None:
        if not ledger.users:
            return
        try:
            with _opened(url, password) as engine, self._feature_store(engine) as features:
                upgrade(engine)
                users = _forgotten_users(engine)
                stores = (features, SqlFeatureHistory(engine))
                forgetting = Forgetting(users, stores, SqlRegistry(engine), DatabaseClock(engine), timedelta())
                again: set[str] = set()
                for recommender, times in ledger.users.items():
                    in_dump = {user.digest: user.at for user in users.all(recommender)}
                    newer = [ForgottenUser(user, at) for user, at in times.items() if user not in in_dump or in_dump[user] < at]
                    if newer:  # older entries of the ledger say nothing of later rows
                        forgetting.replay(recommender, newer)
                        again |= {user.digest for user in newer}
                renew_readable_by(engine)
        except (EyasError, SQLAlchemyError) as error:
            raise Unavailable(f"users who were forgotten after the backup cannot be forgotten again: {error}; {todo}") from error
        self.forgotten_again = len(again)

    @contextmanager
    def _feature_store(self, engine: Engine) -> Iterator[FeatureStore]:
        if self._features == "sql":
            yield SqlFeatureStore(engine)
        else:
            with closing(RedisFeatureStore(self._features)) as redis:
                yield redis

    def forgotten(self) -> dict[str, dict[str, datetime]]:
        """Returns when users were forgotten, by recommender and digest."""
        with self._engine() as engine:
            if not (self.installation() and inspect(engine).has_table(forgotten_users.name)):
                return {}  # never started, or of an older release
            users = _forgotten_users(engine)
            return {name: {user.digest: user.at for user in users.all(name)} for name in users.recommenders()}

    def check_archives_again(self) -> None:
        """Restored archives of events may be older than a forgetting: the platform removes forgotten users from them again."""
        if missing_file(self.database) is not None:
            return
        with self._engine() as engine:
            if inspect(engine).has_table(forgotten_users.name):
                _forgotten_users(engine).unmark_archived()

    def installation(self) -> str:
        with self._engine() as engine, engine.connect() as connection:
            return installation_id(connection)

    def version_files(self) -> Iterator[File]:
        """Yields the files of versions that are not collected. Manifests name the files of an older release's database, too."""
        with self._engine() as engine:
            with engine.connect() as connection:
                if not is_current(connection):
                    return
            registry = SqlRegistry(engine)
            for recommender in SqlRecommenders(engine).list():
                collected = registry.collected(recommender.name)
                for version in registry.list(recommender.name):
                    if version.number not in collected:
                        yield from version.files.values()

    @contextmanager
    def locked(self) -> Iterator[None]:
        self._home.open()
        try:
            yield
        finally:
            self._home.close()

    def _engine(self) -> AbstractContextManager[Engine]:
        return _opened(self.database, self.password)


@contextmanager
def _opened(url: str, password: str | None) -> Iterator[Engine]:
    engine = open_engine(url, password)
    try:
        yield engine
    finally:
        engine.dispose()


def _forgotten_users(engine: Engine) -> SqlForgottenUsers:
    return SqlForgottenUsers(engine, UserDigest.of_installation(id_hash(engine).secret))


@contextmanager
def _readable(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{error.filename or place}: {error.strerror or error}; backups need a place that can be read and written"
        ) from None


def _check_apart(backups: str, artifacts: str) -> None:
    """Raises Invalid if backups would lie in the artifact store, whose content `--keep` would delete."""
    place, store = (_normal(url) for url in (backups, artifacts))
    if place == store or place.startswith(f"{store}/"):
        raise Invalid(f"{backups} is inside the artifact store {artifacts}; name another folder or prefix")


def _normal(url: str) -> str:
    path = url.removeprefix("file://")
    return url.rstrip("/") if "://" in path else str(Path(path).resolve())
