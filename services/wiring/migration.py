"""Migrates the database and ends: run before a platform starts, for example by the chart's hook."""

from __future__ import annotations

import os

from services.home import Home
from services.settings import Settings
from services.store.engine import open_engine
from services.store.migrate import downgrade, upgrade
from services.wiring.state import database_url
from shared.artifacts import FsspecArtifacts


def migrate(revision: str | None) -> str:
    """Migrates to this code's tables, or back to an older revision; returns the revision of the database."""
    settings = Settings.read({})
    os.umask(0o077)  # only the owner may read the database, as with the platform's own
    home = Home(settings.home)
    artifacts = FsspecArtifacts(settings.artifacts_url or str(home.artifacts))
    engine = open_engine(database_url(settings, home, artifacts), settings.password())
    try:
        if revision is None:
            return upgrade(engine)
        downgrade(engine, revision)
        return revision
    finally:
        engine.dispose()
