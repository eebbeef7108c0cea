"""Brings the database up to date and ends: for whoever wants that done before a platform starts, as the chart's hook does."""

from __future__ import annotations

import os

from services.home import Home
from services.settings import Settings
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import upgrade


def migrate() -> None:
    settings = Settings.read({})
    os.umask(0o077)  # the database is its owner's alone, as one that the platform creates
    url = settings.database_url.get_secret_value() if settings.database_url else sqlite_url(Home(settings.home).database)
    engine = open_engine(url, settings.password())
    try:
        upgrade(engine)
    finally:
        engine.dispose()
