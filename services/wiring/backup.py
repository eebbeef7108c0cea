"""Backup and restore of a platform's database and artifacts, with the platform's own settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.home import Home
from services.settings import Settings
from services.store.dumps import check_loadable, dump, load
from services.store.engine import missing_file, open_engine, sqlite_url
from services.store.migrate import check_known
from services.store.recommenders import SqlRecommenders
from services.store.registry import SqlRegistry
from shared.artifacts.backups import BackupStore
from shared.contracts.backup import Backup
from shared.contracts.stage import File
from shared.domain.errors import Invalid, NotFound

Tell = Callable[[str], None]


@dataclass(frozen=True)
class BackupResult:
    backup: Backup
    copied_bytes: int
    pruned: tuple[str, ...] = ()


def back_up(options: Mapping[str, Any], to: str, keep: int | None, tell: Tell) -> BackupResult:
    """Makes a backup while the platform runs, or while it is stopped. `keep`: deletes older backups than this number of newest ones."""
    place = _Place(options)
    if missing_file(place.database) is not None:
        raise NotFound(
            f"database {missing_file(place.database)} is missing or empty: there is nothing to back up; name the platform's --home"
        )
    _check_apart(to, place.artifacts)
    store = BackupStore(to, tell)
    backup = store.take(place.artifacts, lambda path: dump(place.database, place.password, path), place.version_files)
    pruned = store.prune(keep, datetime.now(UTC)) if keep is not None else ()
    return BackupResult(backup, store.copied_bytes, tuple(pruned))


def restore(options: Mapping[str, Any], source: str, name: str | None, artifacts_only: bool, tell: Tell) -> BackupResult:
    """Restores a backup into a database without data. No platform may run on the home meanwhile."""
    place = _Place(options)
    _check_apart(source, place.artifacts)
    store = BackupStore(source, tell)
    backup = store.open(name)
    if artifacts_only:  # the platform may run: content is named by its digest
        store.restore(backup, place.artifacts, None)
    else:
        with place.locked():
            check_known(backup.database.revision)
            check_loadable(place.database, place.password, backup.database.kind)
            store.restore(backup, place.artifacts, lambda path: load(place.database, place.password, path))
    return BackupResult(backup, store.copied_bytes)


class _Place:
    """Where the settings say that the state is."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        os.umask(0o077)  # only the owner may read copies of the database
        settings = Settings.read({name: value for name, value in options.items() if value is not None})
        self._home = Home(settings.home)
        self.artifacts = settings.artifacts_url or str(self._home.artifacts)
        self.database = settings.database_url.get_secret_value() if settings.database_url else sqlite_url(self._home.database)
        self.password = settings.password()

    def version_files(self) -> Iterator[File]:
        with ExitStack() as undo:
            engine = open_engine(self.database, self.password)
            undo.callback(engine.dispose)
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


def _check_apart(backups: str, artifacts: str) -> None:
    to, store = (Path(place).absolute() for place in (backups, artifacts))
    if "://" not in backups and "://" not in artifacts and (to == store or store in to.parents):
        raise Invalid(f"{backups} is inside the artifact store {artifacts}; name another folder")
    if backups.rstrip("/") == artifacts.rstrip("/"):
        raise Invalid(f"{backups} is the artifact store; name another bucket or prefix")
