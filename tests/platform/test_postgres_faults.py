"""PostgreSQL's faults: those that pass are Unavailable in one line, those of the set-up say what to do, none repeats a password."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, text

from services.store.engine import open_engine
from services.store.migrate import upgrade
from services.store.resources import SqlResources
from shared.contracts.records import RolloutSpec
from shared.domain.errors import Invalid, Unavailable, Unsupported
from shared.domain.rollout import RolloutStatus
from shared.testing.waiting import wait_for
from tests.servers.ports import free_port
from tests.servers.postgres_server import GUARDED, PASSWORD, Server, postgres_server
from tests.support.resource_suite import rollout

ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine(postgres: Server) -> Iterator[Engine]:
    url = postgres.new_database()
    engine = open_engine(url)
    yield engine
    engine.dispose()
    postgres.drop_database(url)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that may be stopped."""
    with postgres_server() as server:
        yield server


def fault(url: str) -> str:
    """The one line that an operator gets."""
    engine = open_engine(url)
    with pytest.raises(Unavailable) as said:
        upgrade(engine)
    engine.dispose()
    assert "\n" not in str(said.value)
    assert "hunter2" not in str(said.value)
    assert url not in str(said.value)
    return str(said.value)


def test_a_wrong_database_url_is_a_line_that_says_what_to_do(postgres: Server) -> None:
    if not postgres.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{GUARDED}'"):
        postgres.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")
    assert "the password or the user is wrong" in fault(postgres.url("postgres", GUARDED, "hunter2"))
    assert "requires a password" in fault(postgres.url("postgres", GUARDED))
    assert "create it, or correct" in fault(postgres.url("nowhere", password="hunter2"))
    assert "create it, or correct" in fault(postgres.url("postgres", "nobody_known", "hunter2"))
    assert "check that the server runs" in fault(f"postgresql://eyas:hunter2@127.0.0.1:{free_port()}/eyas")
    assert "name is unknown" in fault("postgresql://eyas:hunter2@no-such-host.invalid/eyas")
    engine = open_engine(postgres.url("postgres", password="hunter2") + "&nonsense=1")
    with pytest.raises(Invalid, match="parameter unknown to PostgreSQL"):
        upgrade(engine)
    good = open_engine(postgres.url("postgres", GUARDED, PASSWORD))
    with good.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    good.dispose()


def test_a_user_without_rights_is_told_so(postgres: Server) -> None:
    postgres.execute("CREATE ROLE poor LOGIN")
    url = postgres.new_database(migrated=False)
    assert "grant it" in fault(url.replace("//eyas@", "//poor@"))
    postgres.drop_database(url)
    postgres.execute("DROP ROLE poor")


def test_a_database_in_another_encoding_is_refused(postgres: Server) -> None:
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    engine = open_engine(postgres.url("latin"))
    with pytest.raises(Unsupported, match=r"LATIN1.*UTF8"):
        upgrade(engine)
    engine.dispose()
    postgres.drop_database(postgres.url("latin"))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
def test_a_server_that_comes_back_is_found_at_once(own_server: Server, how: signal.Signals) -> None:
    engine = open_engine(own_server.new_database())
    with engine.connect() as one, engine.connect() as two:  # several connections, all of them dead afterwards
        assert one.execute(text("SELECT 1")).scalar() == two.execute(text("SELECT 1")).scalar() == 1
    with pytest.raises(Unavailable, match=r"lost|shutting down"), engine.begin() as connection:
        connection.execute(text("INSERT INTO leases VALUES ('a', 'me', 1)"))
        own_server.stop(how)
        connection.execute(text("INSERT INTO leases VALUES ('b', 'me', 1)"))
    with pytest.raises(Unavailable, match="check that the server runs"), engine.connect():
        pass
    own_server.start()
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0
    with pytest.raises(Unavailable, match=r"lost|shutting down"), engine.begin() as connection:
        connection.execute(text("INSERT INTO leases VALUES ('a', 'me', 1)"))
        own_server.restart(how)  # the commit finds no connection
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM leases")).scalar() == 0
    engine.dispose()


def test_a_server_that_has_no_connection_left_is_unavailable(own_server: Server) -> None:
    engine = open_engine(own_server.new_database())
    own_server.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 1")
    url = own_server.url("postgres", "few")
    first, second = open_engine(url), open_engine(url)
    with first.connect() as held:
        held.execute(text("SELECT 1"))
        with pytest.raises(Unavailable, match="too many connections"), second.connect():
            pass
    for one in (engine, first, second):
        one.dispose()


def test_threads_that_find_no_free_connection_are_told_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.pool, "_timeout", 0.01)
    held = [engine.connect() for _ in range(32)]
    with pytest.raises(Unavailable, match="32 connections"):
        engine.connect()
    for one in held:
        one.close()


def test_who_only_reads_sees_one_state_and_writes_nothing(engine: Engine) -> None:
    with engine.execution_options(read_only=True).connect() as reader:
        assert reader.execute(text("SELECT count(*) FROM leases")).scalar() == 0
        with engine.begin() as writer:
            writer.execute(text("INSERT INTO leases VALUES ('a', 'me', 1)"))
        assert reader.execute(text("SELECT count(*) FROM leases")).scalar() == 0
        with pytest.raises(Unavailable, match="read-only"):
            reader.execute(text("DELETE FROM leases"))
    with engine.begin() as writer:
        assert writer.execute(text("DELETE FROM leases")).rowcount == 1


def test_two_writers_that_wait_for_each_other_are_parted(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO leases VALUES ('a', 'x', 1), ('b', 'x', 1)"))

    def write(*names: str) -> str:
        try:
            with engine.begin() as connection:
                for name in names:
                    connection.execute(text("UPDATE leases SET until = until + 1 WHERE name = :name"), {"name": name})
                    connection.execute(text("SELECT pg_sleep(0.2)"))
        except Unavailable as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(lambda names: write(*names), (("a", "b"), ("b", "a"))))
    assert said[0] == ""
    assert "deadlock of two writers" in said[1]


def test_a_claim_leaves_a_row_that_is_being_written_to_the_next_time(engine: Engine) -> None:
    store = SqlResources(engine, "rollout", RolloutStatus, RolloutSpec)
    for n in range(3):
        store.create(rollout(f"ro-{n}"), "ada")
    with engine.begin() as connection:
        connection.execute(text("UPDATE resources SET revision = 7 WHERE id = 'ro-1'"))
        assert store.claim("a", 1) == 2
    assert store.claim("a", 1) == 1


@pytest.mark.parametrize(("setting", "said"), [("lock_timeout", "other writers took"), ("statement_timeout", "the statement took")])
def test_nobody_waits_for_ever(engine: Engine, setting: str, said: str) -> None:
    with engine.begin() as holder:
        holder.execute(text("LOCK TABLE leases"))
        with pytest.raises(Unavailable, match=said), engine.begin() as connection:
            connection.execute(text(f"SET LOCAL {setting} = '50ms'"))
            connection.execute(text("DELETE FROM leases"))


def test_a_text_that_postgresql_cannot_store_is_invalid(engine: Engine) -> None:
    with pytest.raises(Invalid, match="NUL"), engine.begin() as connection:
        connection.execute(text("INSERT INTO leases VALUES (:name, 'me', 1)"), {"name": "a\0b"})


def test_a_bug_stays_a_bug(engine: Engine) -> None:
    with pytest.raises(Exception, match="nonsense") as raised, engine.connect() as connection:
        connection.execute(text("SELECT nonsense"))
    assert not isinstance(raised.value, Unavailable | Invalid)


def test_the_test_server_dies_with_its_parent() -> None:
    code = (
        "import sys, time\n"
        "from tests.servers.postgres_server import postgres_server\n"
        "with postgres_server() as server:\n"
        "    print(server._process.pid, server.folder, flush=True)\n"
        "    time.sleep(600)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    parent = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert parent.stdout is not None
    pid, folder = parent.stdout.readline().split()
    server = psutil.Process(int(pid))
    everything = [server, *server.children(recursive=True)]
    assert len(everything) > 3
    parent.kill()
    parent.communicate()
    wait_for(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in everything))
    subprocess.run(["rm", "-rf", folder], check=True)
