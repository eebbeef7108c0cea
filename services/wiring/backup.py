"""Backup and restore of a platform's database and artifacts, with the platform's own settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.eventlog.tables import metadata as event_tables
from services.featurestore.tables import metadata as feature_tables
from services.home import Home
from services.settings import Settings
from services.store.dumps import check_loadable, dump, load
from services.store.engine import missing_file, open_engine, sqlite_url
from services.store.installation import installation_id
from services.store.migrate import check_usable, is_current
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from services.store.tables import metadata as state_tables
from shared.artifacts.backups import BackupStore
from shared.contracts.backup import Backup, DatabaseKind, Tables
from shared.contracts.stage import File
from shared.domain.errors import Invalid, NotFound, Unavailable

Tell = Callable[[str], None]
TABLES = tuple(table.name for metadata in (state_tables, event_tables, feature_tables) for table in metadata.sorted_tables)


@dataclass(frozen=True)
class BackupResult:
    backup: Backup
    copied_bytes: int
    pruned: tuple[str, ...] = ()


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
        backup = store.take(state.installation(), state.artifacts, state.dump, state.version_files)
        pruned = store.prune(keep, datetime.now(UTC)) if keep is not None else ()
    return BackupResult(backup, store.copied_bytes, tuple(pruned))


def restore(options: Mapping[str, Any], source: str, name: str | None, artifacts_only: bool, tell: Tell) -> BackupResult:
    """Restores a backup into a database without data. No platform may run on the home meanwhile."""
    state = _State(options)
    _check_apart(source, state.artifacts)
    store = BackupStore(source, tell)
    with _readable(source):
        backup = store.open(name)
        if artifacts_only:  # the platform may run: content is named by its digest
            store.restore(backup, state.artifacts, None)
        else:
            with state.locked():
                check_usable(backup.database.tables)
                check_loadable(state.database, state.password, TABLES, backup.database.kind)
                store.restore(backup, state.artifacts, lambda path: load(state.database, state.password, path))
    return BackupResult(backup, store.copied_bytes)


class _State:
    """The state of a platform, where the settings say that it is."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        os.umask(0o077)  # only the owner may read copies of the database
        settings = Settings.read({name: value for name, value in options.items() if value is not None})
        self._home = Home(settings.home)
        self.artifacts = settings.artifacts_url or str(self._home.artifacts)
        self.database = settings.database_url.get_secret_value() if settings.database_url else sqlite_url(self._home.database)
        self.password = settings.password()

    def dump(self, path: Path) -> tuple[DatabaseKind, Tables]:
        return dump(self.database, self.password, TABLES, path)

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

    @contextmanager
    def _engine(self) -> Iterator[Any]:
        engine = open_engine(self.database, self.password)
        try:
            yield engine
        finally:
            engine.dispose()


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
