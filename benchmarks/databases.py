"""Empty databases to measure on."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres_server import postgres_server


@contextmanager
def databases() -> Iterator[Callable[[str], str]]:
    """Makes empty databases, each with nothing else in it; PostgreSQL keeps its promises to the disk, as in production."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="eyas-bench-") as folder, postgres_server(durable=True) as server:

        def fresh(database: str) -> str:
            return f"sqlite:///{Path(folder) / f'{next(numbers)}.db'}" if database == "sqlite" else server.new_database(migrated=False)

        yield fresh
