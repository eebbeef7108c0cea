"""A database is what the code says it is: after every migration, from any process, and never half."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import BigInteger, Boolean, Column, Engine, Float, Integer, MetaData, Table, insert, inspect, text

from services.eventlog.tables import metadata as event_tables
from services.featurestore.tables import metadata as feature_tables
from services.store import migrate
from services.store.catalogue import SqlCatalogue
from services.store.columns import Instant, Json
from services.store.engine import open_engine, sqlite_url
from services.store.migrate import downgrade, upgrade
from services.store.tables import metadata as state_tables
from shared.domain.catalogue import ItemWrite
from shared.domain.errors import Invalid, Unavailable, Unsupported
from shared.ports import SeedRow
from tests.servers.postgres_server import Server

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[str]:
    """An empty database of the kind that `--database` names."""
    if database == "sqlite":
        yield sqlite_url(tmp_path / "eyas.db")
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.new_database(migrated=False)
        yield url
        server.drop_database(url)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def file_engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(tmp_path / "eyas.db"))
    yield engine
    engine.dispose()


def differences(engine: Engine, *metadata: MetaData) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, list(metadata)))  # type: ignore[arg-type]


def test_the_migrations_make_the_tables_that_the_code_uses(engine: Engine) -> None:
    upgrade(engine)
    assert differences(engine, state_tables, event_tables, feature_tables) == []


def test_the_comparison_would_see_a_table_or_a_column_that_no_migration_makes(engine: Engine) -> None:
    upgrade(engine)
    more = MetaData()
    Table("forgotten", more, Column("id", Integer, primary_key=True))
    assert len(differences(engine, state_tables, event_tables, feature_tables, more)) == 1
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE routes DROP COLUMN salt"))
    assert len(differences(engine, state_tables, event_tables, feature_tables)) == 1


def shape(engine: Engine, table: str) -> object:
    """What Alembic's comparison leaves out: primary keys, exact types, options and numbers that the database gives."""
    seen = inspect(engine)
    columns = {(c["name"], str(c["type"]), c["nullable"], str(c["default"])) for c in seen.get_columns(table)}
    indexes = sorted((one["name"], one["column_names"], one["unique"]) for one in seen.get_indexes(table))
    return seen.get_pk_constraint(table), seen.get_table_options(table), columns, indexes


def test_keys_and_counters_are_made_as_the_code_says(engine: Engine, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    upgrade(engine)
    server: Server | None = request.getfixturevalue("postgres") if engine.dialect.name == "postgresql" else None
    directly = open_engine(server.new_database(migrated=False) if server else sqlite_url(tmp_path / "directly.db"))
    with directly.begin() as connection:
        for metadata in (state_tables, event_tables, feature_tables):
            metadata.create_all(connection)
    tables = inspect(directly).get_table_names()
    assert set(inspect(engine).get_table_names()) - {"alembic_version"} == set(tables)
    for table in tables:
        assert shape(engine, table) == shape(directly, table), table
    counted = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%' ORDER BY name"
    if server:
        counted = "SELECT table_name FROM information_schema.columns WHERE column_default LIKE 'nextval%' ORDER BY table_name"
    for one in (engine, directly):
        with one.connect() as connection:
            assert connection.execute(text(counted)).scalars().all() == ["audit", "history", "interactions"]
    directly.dispose()


def test_upgrading_again_changes_nothing(engine: Engine) -> None:
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO gateways VALUES ('g', '{}', 1)"))
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT gateway FROM gateways")).scalars().all() == ["g"]


def test_many_who_start_at_once_migrate_once(url: str) -> None:
    def start(_: int) -> None:
        engine = open_engine(url)
        upgrade(engine)
        engine.dispose()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    engine = open_engine(url)
    with engine.connect() as connection:
        assert len(connection.execute(text("SELECT version_num FROM alembic_version")).all()) == 1
        assert connection.execute(text("SELECT count(*) FROM impressions")).scalar() == 0
    engine.dispose()


def test_a_database_of_newer_code_is_refused_in_one_line_and_left_alone(engine: Engine) -> None:
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("UPDATE installation SET value = '9999' WHERE name = 'readable_by'"))
        connection.execute(text("DROP TABLE gateways"))
    with pytest.raises(Unsupported, match=r"revision 9999.*newer release has migrated it") as refused:
        upgrade(engine)
    assert "\n" not in str(refused.value)
    assert "gateways" not in inspect(engine).get_table_names()


REVISIONS = ("initial", "catalogue_seeds", "text_ids", "event_deletions", "forgotten_users", "sessions", "audit_export", "item_creation")
TABLES = (state_tables, event_tables, feature_tables)


def fill(engine: Engine) -> None:
    """Writes three rows into each table; ids are integers, no days are deleted, no user is forgotten, and nobody is signed in."""
    empty = ("installation", "forgotten_users", "sessions", "audit_export")
    with engine.begin() as connection:
        for table in (table for metadata in TABLES for table in metadata.sorted_tables if table.name not in empty):
            for number in range(1, 4):
                made = {
                    column.name: example(column, number)
                    for column in table.columns
                    if not column.name.endswith(("user_id", "item_id", "deleted_before"))
                }
                if table.name == "event_deletions":
                    made["refused_before"] = 0  # old events are noticed only, so code without these marks can use the tables
                connection.execute(insert(table).values(made))


def example(column: Column[Any], number: int) -> Any:
    examples: dict[type, Any] = {
        Instant: datetime(2026, 1, number, tzinfo=UTC),
        Json: {"n": number},
        Boolean: number == 1,
        Integer: number,
        BigInteger: number,
        Float: number / 2,
    }
    kind_of_ids = "integer" if column.name in ("user_ids", "item_ids") else f"text {number}"
    return next((value for kind, value in examples.items() if isinstance(column.type, kind)), kind_of_ids)


def rows(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    metadata = MetaData()
    metadata.reflect(engine)
    with engine.connect() as connection:
        tables = {table.name: connection.execute(table.select()).mappings().all() for table in metadata.tables.values()}
    return {name: sorted((dict(row) for row in found), key=repr) for name, found in tables.items()}


@pytest.mark.requirement("U-11")
@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_each_migration_goes_both_ways_on_a_filled_database(engine: Engine, revision: str) -> None:
    upgrade(engine)
    assert revision_of(engine) == REVISIONS[-1], "a new migration belongs into REVISIONS"
    fill(engine)
    before = rows(engine)
    downgrade(engine, revision)
    assert revision_of(engine) == revision
    older = rows(engine)
    for name, found in older.items():
        if name != "alembic_version" and found:
            columns = found[0].keys()
            assert found == sorted(({column: row[column] for column in columns} for row in before[name]), key=repr), name
    upgrade(engine)
    assert differences(engine, *TABLES) == []
    written_again = ("installation", "event_deletions")  # refused days, of which none is deleted
    assert {name: len(found) for name, found in rows(engine).items() if name not in written_again} == {
        name: len(found) for name, found in before.items() if name not in written_again
    }
    for name, found in older.items():
        if name != "alembic_version":
            assert found == sorted(({column: row[column] for column in found[0]} for row in rows(engine)[name]), key=repr), name


def revision_of(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


@pytest.mark.requirement("U-11")
def test_a_way_back_that_loses_rows_or_is_none_is_refused_and_nothing_changes(engine: Engine) -> None:
    upgrade(engine)
    with engine.begin() as connection:
        spec = "INSERT INTO recommenders (name, generation, spec, created_at, updated_at, user_ids) VALUES ('films', 1, '{}', 0, 0, 'text')"
        connection.execute(text(spec))
    before = rows(engine)
    for revision, error, message in (
        ("initial", Unsupported, "'text_ids' cannot go back: the text ids of 1 recommender would be lost; restore a backup"),
        (
            "initials",
            Invalid,
            "unknown revision 'initials'; known: item_creation, audit_export, sessions, forgotten_users, event_deletions, text_ids, "
            "catalogue_seeds, initial",
        ),
        ("base", Invalid, "unknown revision 'base'"),
    ):
        with pytest.raises(error, match=message):
            downgrade(engine, revision)
    assert rows(engine) == before
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM recommenders"))
        connection.execute(text("INSERT INTO event_deletions VALUES ('films', 'impressions', 1, 1, 1, 1)"))
        connection.execute(text("INSERT INTO forgotten_users VALUES ('films', '00', 1, true)"))
    with pytest.raises(Unsupported, match="'forgotten_users' cannot go back: the memory of 1 forgotten users"):
        downgrade(engine, "event_deletions")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM forgotten_users"))
    with pytest.raises(Unsupported, match="'event_deletions' cannot go back: the marks of deleted days, without which training lacks"):
        downgrade(engine, "text_ids")
    with engine.begin() as connection:
        connection.execute(text("UPDATE event_deletions SET deleted_before = NULL"))
    downgrade(engine, "catalogue_seeds")
    with pytest.raises(Invalid, match="is at revision catalogue_seeds, which is older"):
        downgrade(engine, "text_ids")


NEWER = ROOT / "tests/support/newer_release/0009_notes.py"


@pytest.mark.requirement("U-11")
def test_code_uses_the_tables_of_a_newer_release_that_says_it_can(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newer = shutil.copytree(migrate._MIGRATIONS, tmp_path / "migrations")
    shutil.copy(NEWER, newer / "versions")
    with monkeypatch.context() as release:
        release.setattr(migrate, "_MIGRATIONS", newer)
        upgrade(engine)
    assert revision_of(engine) == "notes"
    upgrade(engine)
    assert revision_of(engine) == "notes"
    assert "migrated by a newer release, used unchanged revision=notes readable_by=text_ids" in caplog.text
    with engine.begin() as connection:
        connection.execute(
            insert(state_tables.tables["recommenders"]).values(name="films", generation=1, spec={}, created_at=NOW, updated_at=NOW)
        )
        assert connection.execute(text("SELECT note FROM recommenders")).scalars().all() == [None]
    with pytest.raises(Unsupported, match="use the `eyas migrate --to` of that release"):
        downgrade(engine, "text_ids")
    moved = NEWER.read_text().replace('revision = "notes"', 'revision = "moved"', 1)
    moved = moved.replace('"item_creation"', '"notes"').replace('return "text_ids"', 'return "notes"')
    (newer / "versions" / "0010_moved.py").write_text(moved.replace("note TEXT", "place TEXT"))
    with monkeypatch.context() as release:
        release.setattr(migrate, "_MIGRATIONS", newer)
        upgrade(engine)
    with pytest.raises(Unsupported, match="revision moved, which this release does not know"):
        upgrade(engine)


@pytest.mark.parametrize("revision", ["0001", "0010"])
def test_a_database_from_before_the_first_release_is_refused_in_one_line_and_left_alone(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text(f"INSERT INTO alembic_version VALUES ('{revision}')"))
    with pytest.raises(Unsupported, match="older than the first release: start with an empty database") as refused:
        upgrade(engine)
    assert "\n" not in str(refused.value)
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_a_migration_that_fails_leaves_the_database_as_it_was(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE interactions (mine INTEGER)"))
    with pytest.raises(Exception, match=r"interactions.* already exists"):
        upgrade(engine)
    assert inspect(engine).get_table_names() == ["interactions"]


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("mysql://eyas:hunter2@db/eyas", Unsupported, "'mysql' is not supported: use sqlite"),
        ("postgresql+asyncpg://eyas:hunter2@db/eyas", Unsupported, r"'postgresql\+asyncpg' is not supported"),
        ("postgresql://eyas:hunter2@db:5432", Invalid, "has no database name"),
        ("postgresql://eyas:hunter2@db:port/eyas", Invalid, "cannot be read"),
        ("sqlite+aiosqlite:///x.db", Unsupported, "not supported"),
        ("sqlite://", Unsupported, "memory"),
        ("sqlite:///:memory:", Unsupported, "memory"),
        ("sqlite:///file:x?mode=memory&uri=true", Unsupported, "memory"),
        ("eyas.db", Invalid, "use sqlite:///"),
    ],
)
def test_other_databases_are_refused_by_name_and_no_password_is_repeated(url: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as refused:
        open_engine(url)
    assert "hunter2" not in str(refused.value)


def test_every_connection_is_set_up_alike(file_engine: Engine) -> None:
    settings = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    reads = file_engine.execution_options(read_only=True)
    with reads.connect() as one, reads.connect() as two, file_engine.connect() as three:
        for connection in (one, two, three):
            found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in settings]
            assert found == ["wal", 1, 1, 10_000]


def test_a_file_that_is_no_database_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "eyas.db").write_text("something else altogether, and long enough to be looked at as a header" * 20)
    with pytest.raises(Invalid, match="not a SQLite database"):
        upgrade(open_engine(f"sqlite:///{tmp_path}/eyas.db"))


def test_a_folder_in_the_place_of_the_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "eyas.db").mkdir()
    with pytest.raises(Unavailable, match="unable to open"):
        upgrade(open_engine(f"sqlite:///{tmp_path}/eyas.db"))
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="folder"):
        open_engine(f"sqlite:///{tmp_path}/file/eyas.db")


def test_a_database_that_another_program_holds_is_unavailable(file_engine: Engine, tmp_path: Path) -> None:
    upgrade(file_engine)
    other = sqlite3.connect(tmp_path / "eyas.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with file_engine.execution_options(read_only=True).connect() as reader:  # readers don't mind
        reader.exec_driver_sql("PRAGMA busy_timeout=1")
        assert reader.exec_driver_sql("SELECT count(*) FROM routes").scalar() == 0
    with pytest.raises(Unavailable, match="locked"), file_engine.begin():  # the same connection, with its short patience
        pass
    other.execute("ROLLBACK")
    other.close()
    upgrade(file_engine)


def test_a_transaction_that_fails_gives_its_turn_back_and_writes_nothing(engine: Engine) -> None:
    upgrade(engine)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="midway"), engine.begin() as connection:
            connection.execute(text("INSERT INTO gateways VALUES ('g', '{}', 1)"))
            raise RuntimeError("midway")
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM gateways")).scalar() == 0


def test_a_writer_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.store.sqlite._PATIENCE", 0.01)
    engine = open_engine(f"sqlite:///{tmp_path}/eyas.db")
    with engine.begin(), pytest.raises(Unavailable, match="other writers"), engine.begin():
        pass
    with engine.begin() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    engine.dispose()


def test_an_older_database_gets_the_names_of_its_attributes(engine: Engine) -> None:
    upgrade(engine)
    newer_columns = {
        "catalogues": ("names", "seed_version", "seed_digest", "seed_left"),
        "catalogue_items": ("id", "times", "created_at"),
        "interactions": ("user_id", "item_id"),
        "recommenders": ("user_ids", "item_ids"),
        "audit": ("exported",),
    }
    rows = {"films": ['{"price":1}', '{"age":2,"price":null}', "{", "[]"], "empty": []}
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE installation"))
        connection.execute(text("DROP TABLE event_deletions"))
        connection.execute(text("DROP TABLE forgotten_users"))
        connection.execute(text("DROP TABLE sessions"))
        connection.execute(text("DROP INDEX audit_to_export"))
        for table, columns in newer_columns.items():
            for column in columns:
                connection.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        connection.execute(text("UPDATE alembic_version SET version_num = 'initial'"))
        recommender = "INSERT INTO recommenders (name, generation, spec, created_at, updated_at) VALUES ('films', 1, '{}', 0, 0)"
        connection.execute(text(recommender))
        for name, items in rows.items():
            connection.execute(text("INSERT INTO catalogues VALUES (:name, 9, 0)"), {"name": name})
            for number, attributes in enumerate(items):
                statement = "INSERT INTO catalogue_items VALUES (:name, :item, :attributes, true, false, :item, 1)"
                connection.execute(text(statement), {"name": name, "item": number, "attributes": attributes})
    upgrade(engine)
    catalogue, now = SqlCatalogue(engine), datetime(2026, 1, 1, tzinfo=UTC)
    assert {name: set(catalogue.names(name)) for name in rows} == {"films": {"age", "price"}, "empty": set()}
    assert not catalogue.seeds()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT user_ids, item_ids FROM recommenders")).one() == ("integer", "integer")
    assert catalogue.put("films", [ItemWrite(0, {"price": 1})], now, True) == 0
    catalogue.seed("films", {0: SeedRow({"price": 2}), 1: SeedRow({"age": 3})}, now - timedelta(seconds=1))
    assert [item.attributes[name] for item, name in zip(catalogue.page("films", 2), ("price", "age"), strict=True)] == [1, 3]
