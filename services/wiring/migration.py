"""Brings the database up to date and ends: for whoever wants that done before a platform starts, as the chart's hook does."""

from __future__ import annotations

import os

from services.home import Home
from services.settings import Settings
from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.wiring.state import database_url
from shared.artifacts import FsspecArtifacts


def migrate() -> None:
    settings = Settings.read({})
    os.umask(0o077)  # the database is its owner's alone, as one that the platform creates
    home = Home(settings.home)
    artifacts = FsspecArtifacts(settings.artifacts_url or str(home.artifacts))
    engine = open_engine(database_url(settings, home, artifacts), settings.password())
    try:
        upgrade(engine)
    finally:
        engine.dispose()
