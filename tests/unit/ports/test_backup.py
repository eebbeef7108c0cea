"""Backup and restore of a database and of its artifacts, through the functions of the commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, select, text

from services.eventlog.forgetting import SqlForgottenUsers
from services.eventlog.sql import SqlEventLog
from services.featurestore.history import SqlFeatureHistory
from services.featurestore.sql import SqlFeatureStore
from services.store import dumps, migrate
from services.store.engine import open_engine, sqlite_url
from services.store.installation import id_hash
from services.store.migrate import downgrade, upgrade
from services.store.recommenders import SqlRecommenders
from services.store.sessions import SqlSessions
from services.store.tokens import SqlTokens
from services.wiring import backup as wiring
from services.wiring.backup import BackupResult, back_up
from shared.artifacts import FsspecArtifacts
from shared.artifacts.backups import BackupStore
from shared.contracts.backup import DatabaseKind, ForgottenTimes, Tables
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, Damaged, EyasError, Invalid, NotFound, Unavailable, Unsupported
from shared.domain.feature_values import StoredRow
from shared.domain.forgetting import UserDigest
from shared.domain.sessions import LIFE, Session
from shared.testing.event_suite import did, shown, take
from tests.support.recommender_suite import spec
from tests.support.resource_suite import NOW

pytestmark = pytest.mark.requirement("U-11")


def quiet(line: str) -> None:
    assert line


class Installation:
    """A home with a database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.artifacts = FsspecArtifacts(str(folder / "artifacts"))

    @property
    def options(self) -> dict[str, Any]:
        return {"home": self.folder, "database_url": self.url}

    def back_up(self, to: Path, keep: int | None = None) -> BackupResult:
        return back_up(self.options, str(to), keep, quiet)

    def restore(self, source: Path, name: str | None = None, artifacts_only: bool = False) -> BackupResult:
        return wiring.restore(self.options, str(source), name, artifacts_only, quiet)

    def publish(self, attempt: str, *contents: str) -> Manifest:
        files = {f"{number}.bin": self._put(content) for number, content in enumerate(contents)}
        manifest = Manifest(run="r1", stage="etl", attempt=attempt, files=files, started=NOW, ended=NOW)
        self.artifacts.publish(manifest)
        return manifest

    def compact(self, attempt: str, parts: Mapping[str, str], replaces: Sequence[str] = ()) -> Manifest:
        """Publishes a try of a compaction, or its result."""
        files = {name: self._put(content) for name, content in parts.items()}
        run = attempt.partition("-etl-")[0]
        facts = {"replaces": list(replaces)} if replaces else {}
        manifest = Manifest(run=run, stage="etl", attempt=attempt, files=files, started=NOW, ended=NOW, facts=facts)
        self.artifacts.publish(manifest)
        return manifest

    def _put(self, content: str) -> File:
        path = self.folder / "content"
        path.write_text(content)
        return self.artifacts.put(path)

    def rows(self) -> dict[str, list[Any]]:
        engine = open_engine(self.url)
        metadata = MetaData()
        metadata.reflect(engine)
        with engine.connect() as connection:
            rows_by_table = {name: sorted(map(repr, connection.execute(select(table)))) for name, table in metadata.tables.items()}
        engine.dispose()
        return rows_by_table

    def files(self) -> dict[str, bytes]:
        root = self.folder / "artifacts"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def tools(database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """pg_dump and pg_restore of the server's version."""
    if database == "postgresql":
        monkeypatch.setenv("PATH", f"{request.getfixturevalue('postgres').tools}:{os.environ['PATH']}")


@pytest.fixture
def home(database_url: str, engine: Engine, tmp_path: Path, tools: None) -> Installation:
    (tmp_path / "home").mkdir()
    made = Installation(tmp_path / "home", database_url)
    SqlRecommenders(engine).put(spec("films"), NOW, "owner")
    id_hash(engine)
    made.publish("r1-etl-1", "rows", "items")
    made.publish("r1-train-1", "weights", "rows")
    (made.folder / "log").write_text("trained\n")
    made.artifacts.keep_log("r1-train-1", made.folder / "log")
    return made


@pytest.fixture
def new_home(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], Installation]]:
    """Makes installations without data. On PostgreSQL the tables exist already, as a control plane makes them."""
    urls: list[str] = []

    def make() -> Installation:
        folder = tmp_path / f"new-{len(urls)}"
        folder.mkdir()
        on_sqlite = database == "sqlite"
        urls.append(sqlite_url(folder / "eyas.db") if on_sqlite else request.getfixturevalue("postgres").new_database())
        return Installation(folder, urls[-1])

    yield make
    if database == "postgresql":
        for url in urls:
            request.getfixturevalue("postgres").drop_database(url)


def test_a_restored_platform_has_the_same_rows_and_artifacts(home: Installation, new_home: Any, tmp_path: Path) -> None:
    made = home.back_up(tmp_path / "backups")
    assert BackupStore(str(tmp_path / "backups")).names() == [made.backup.name]
    target = new_home()
    restored = target.restore(tmp_path / "backups")
    assert restored.backup == made.backup
    assert target.rows() == home.rows()
    assert target.files() == home.files()
    assert oct(next((tmp_path / "backups/backups").iterdir()).stat().st_mode)[-3:] == "600", "only its owner reads it"
    again = new_home().restore(tmp_path / "backups", made.backup.name)
    assert again.copied_bytes == restored.copied_bytes > 0


def test_rows_and_artifacts_of_later_are_not_in_it(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    before = home.rows()
    made = home.back_up(tmp_path / "backups")
    SqlRecommenders(engine).put(spec("books"), NOW, "owner")
    home.publish("r2-etl-1", "newer")
    target = new_home()
    target.restore(tmp_path / "backups", made.backup.name)
    assert target.rows() == before
    assert target.artifacts.manifest("r2-etl-1") is None


def test_artifacts_are_copied_once(home: Installation, tmp_path: Path) -> None:
    first = home.back_up(tmp_path / "backups")
    home.publish("r2-etl-1", "rows", "more rows")
    second = home.back_up(tmp_path / "backups")
    manifest = len((home.folder / "artifacts/manifests/r2-etl-1.json").read_bytes())
    assert first.copied_bytes > first.backup.database.file.size + len("rows" + "items" + "weights")
    again = second.backup.database.file.size if second.backup.database.file != first.backup.database.file else 0
    assert second.copied_bytes - again == len("more rows") + manifest


def test_what_is_published_or_collected_during_the_dump_makes_no_gap(
    home: Installation, new_home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def during(*arguments: Any) -> Any:
        home.publish("r2-etl-1", "published during the dump")
        gone = home.artifacts.manifest("r1-etl-1")
        assert gone is not None
        (home.folder / "artifacts/manifests/r1-etl-1.json").unlink()
        items = gone.files["1.bin"].sha256
        (home.folder / f"artifacts/blobs/{items[:2]}/{items}").unlink()
        return dumps.dump(*arguments)

    monkeypatch.setattr(wiring, "dump", during)
    home.back_up(tmp_path / "backups")
    target = new_home()
    target.restore(tmp_path / "backups")
    assert all(target.artifacts.manifest(attempt) for attempt in ("r1-etl-1", "r1-train-1", "r2-etl-1"))
    assert {b"items", b"published during the dump"} <= set(target.files().values())


def test_lost_artifacts_are_named_and_all_else_is_backed_up(home: Installation, new_home: Any, tmp_path: Path) -> None:
    lost, damaged = (file.sha256 for file in home.publish("r3-etl-1", "lost", "damaged").files.values())
    (home.folder / f"artifacts/blobs/{lost[:2]}/{lost}").unlink()
    (home.folder / f"artifacts/blobs/{damaged[:2]}/{damaged}").write_text("other")
    assert home.back_up(tmp_path / "backups").backup.missing == tuple(sorted((lost, damaged)))
    target = new_home()
    target.restore(tmp_path / "backups")
    assert target.rows() == home.rows()
    assert target.artifacts.manifest("r3-etl-1") is not None


def test_data_is_never_overwritten(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    home.back_up(tmp_path / "backups")
    before = home.rows()
    with pytest.raises(Conflict, match=r"exists; move it away first|has data in .*recommenders; restore into an empty database"):
        home.restore(tmp_path / "backups")
    assert home.rows() == before
    used = new_home()
    if used.url.startswith("postgresql"):
        other = open_engine(used.url)
        SqlTokens(other)
        SqlRecommenders(other).put(spec("mine"), NOW, "owner")
        other.dispose()
        with pytest.raises(Conflict, match="has data in"):
            used.restore(tmp_path / "backups")
    foreign = new_home()
    foreign.publish("r1-etl-1", "of another platform")
    files = foreign.files()
    with pytest.raises(Conflict, match=r"artifacts of another platform: manifests/r1-etl-1.json differs"):
        foreign.restore(tmp_path / "backups")
    assert foreign.files() == files


def test_a_damaged_backup_is_refused_before_the_database_is_touched(home: Installation, new_home: Any, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    made = home.back_up(backups).backup
    target = new_home()
    for damaged in (made.database.file, made.blobs[0], next(iter(made.files.values()))):
        path = backups / "blobs" / damaged.sha256[:2] / damaged.sha256
        content = path.read_bytes()
        path.write_bytes(b"x" + content[1:])
        with pytest.raises(Damaged):
            target.restore(backups)
        path.write_bytes(content)
    assert "films" not in str(target.rows()) if target.url.startswith("postgresql") else not (target.folder / "eyas.db").exists()
    target.restore(backups)
    assert target.rows() == home.rows()


def test_an_interrupted_restore_can_be_repeated(home: Installation, new_home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.back_up(tmp_path / "backups")
    target = new_home()
    with monkeypatch.context() as patched:
        patched.setattr(wiring, "load", lambda *_: (_ for _ in ()).throw(Unavailable("killed")))
        with pytest.raises(Unavailable, match="killed"):
            target.restore(tmp_path / "backups")
    assert target.restore(tmp_path / "backups").copied_bytes == 0
    assert (target.rows(), target.files()) == (home.rows(), home.files())


def test_lost_artifacts_alone_are_restored(home: Installation, tmp_path: Path) -> None:
    home.back_up(tmp_path / "backups")
    before = home.files()
    for path in [path for path in (home.folder / "artifacts").rglob("*") if path.is_file()]:
        path.unlink()
    home.restore(tmp_path / "backups", artifacts_only=True)
    assert home.files() == before


def test_old_backups_and_the_content_of_them_alone_are_deleted(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    store = BackupStore(str(backups))
    document = home.back_up(backups).backup
    for day in ("20261120T000000Z", "20261121T000000Z"):
        (backups / "backups" / f"{day}.json").write_text(document.model_dump_json())
    unnamed = backups / "blobs" / "ab" / ("ab" * 32)
    unnamed.parent.mkdir(exist_ok=True)
    unnamed.write_text("of a deleted backup")
    assert store.prune(2, NOW) == ["20261120T000000Z"]
    assert unnamed.exists(), "younger than a day: a backup that runs now may need it"
    os.utime(unnamed, (1_600_000_000, 1_600_000_000))
    assert store.prune(2, NOW + timedelta(days=400)) == []
    assert not unnamed.exists()
    target = new_home()
    target.restore(backups)
    assert target.files() == home.files()


OTHER_TABLES = {
    "kind": "sqlite",
    "tables": {"revision": "0099", "readable_by": "0098"},
    "file": {"sha256": "0" * 64, "size": 1},
}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": 2}, Invalid, "a newer release wrote this backup"),
        ({"database": OTHER_TABLES}, Unsupported, "cannot use tables of revision '0099'"),
        ({"files": {"manifests/../../evil.json": {"sha256": "0" * 64, "size": 1}}}, Invalid, "files"),
        ({"files": {"blobs/x.json": {"sha256": "0" * 64, "size": 1}}}, Invalid, "files"),
        ("{", Damaged, "document is damaged"),
    ],
)
def test_a_document_that_is_none_is_refused(
    home: Installation, new_home: Any, tmp_path: Path, change: Any, error: type[EyasError], message: str
) -> None:
    name = home.back_up(tmp_path / "backups").backup.name
    path = tmp_path / "backups" / "backups" / f"{name}.json"
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    target = new_home()
    with pytest.raises(error, match=message):
        target.restore(tmp_path / "backups")
    assert target.files() == {}


def test_a_dump_of_the_other_kind_and_places_that_are_none_are_refused(home: Installation, tmp_path: Path) -> None:
    home.back_up(tmp_path / "backups")
    other = "postgresql://eyas@127.0.0.1:1/eyas" if home.url.startswith("sqlite") else sqlite_url(tmp_path / "other.db")
    (tmp_path / "other").mkdir()
    with pytest.raises(Invalid, match=r"the backup is of a \w+ database, EYAS_DATABASE_URL names"):
        Installation(tmp_path / "other", other).restore(tmp_path / "backups")
    with pytest.raises(NotFound, match="no backup found"):
        home.restore(tmp_path / "nothing")
    with pytest.raises(NotFound, match="no backup '20200101T000000Z'; the newest are"):
        home.restore(tmp_path / "backups", "20200101T000000Z")
    (tmp_path / "link").symlink_to(home.folder / "artifacts")
    artifacts = home.folder / "artifacts"
    for inside in (artifacts, artifacts / "b", home.folder / "x/../artifacts", tmp_path / "link", f"file://{artifacts}"):
        with pytest.raises(Invalid, match="inside the artifact store"):
            back_up(home.options, str(inside), None, quiet)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"Not a directory; backups need a place that can be read and written"):
        home.back_up(tmp_path / "file" / "backups")
    with pytest.raises(Invalid, match="foo://x: no place for backups: Protocol not known: foo; name a folder or s3://"):
        back_up(home.options, "foo://x", None, quiet)
    with pytest.raises(NotFound, match="nothing to back up"):
        Installation(tmp_path / "other", sqlite_url(tmp_path / "none.db")).back_up(tmp_path / "backups")


def test_two_installations_do_not_share_a_place(home: Installation, new_home: Any, tmp_path: Path) -> None:
    home.back_up(tmp_path / "backups")
    other = new_home()
    engine = open_engine(other.url)
    upgrade(engine)
    id_hash(engine)
    engine.dispose()
    with pytest.raises(Conflict, match="has backups of another installation; name another folder or prefix"):
        other.back_up(tmp_path / "backups", keep=1)
    assert len(BackupStore(str(tmp_path / "backups")).names()) == 1
    restored = new_home()
    restored.restore(tmp_path / "backups")
    assert restored.back_up(tmp_path / "backups").backup.installation, "a restored installation goes on with the same place"


def test_a_damaged_manifest_is_named_and_all_else_is_backed_up(home: Installation, tmp_path: Path) -> None:
    (home.folder / "artifacts/manifests/r1-train-1.json").write_text("{")
    backup = home.back_up(tmp_path / "backups").backup
    assert backup.missing == ("manifests/r1-train-1.json",)
    assert "manifests/r1-etl-1.json" in backup.files


def test_a_database_of_an_older_release_is_backed_up(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    """A newer release is installed already; the database is not migrated yet."""
    downgrade(engine, "catalogue_seeds")
    tables = home.back_up(tmp_path / "backups").backup.database.tables
    assert (tables.revision, tables.readable_by) == ("catalogue_seeds", "catalogue_seeds")
    target = new_home()
    target.restore(tmp_path / "backups")
    assert target.rows()["recommenders"] == home.rows()["recommenders"]


def test_a_release_restores_tables_of_a_newer_one_that_it_can_use(
    home: Installation, new_home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = shutil.copytree(migrate._MIGRATIONS, tmp_path / "migrations")
    shutil.copy(Path(__file__).parents[2] / "support/newer_release/0009_notes.py", newer / "versions")
    with monkeypatch.context() as release:
        release.setattr(migrate, "_MIGRATIONS", newer)
        engine = open_engine(home.url)
        upgrade(engine)
        engine.dispose()
    assert home.back_up(tmp_path / "backups").backup.database.tables.revision == "notes"
    target = new_home()
    target.restore(tmp_path / "backups")
    assert target.rows() == home.rows()


def test_tables_of_others_in_the_same_database_stay_as_they_are(home: Installation, new_home: Any, tmp_path: Path, database: str) -> None:
    if database == "sqlite":
        return  # one file for each platform
    for installation in (home, new_home()):
        engine = open_engine(installation.url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (number INTEGER)"))
            connection.execute(text("INSERT INTO orders VALUES (1)"))
        engine.dispose()
    home.back_up(tmp_path / "backups")
    engine = open_engine(installation.url)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO orders VALUES (2)"))
    engine.dispose()
    installation.restore(tmp_path / "backups")
    assert installation.rows()["orders"] == ["(1,)", "(2,)"]
    assert installation.rows()["recommenders"] == home.rows()["recommenders"]


ANNA, BERTA = "ab" * 16, "cd" * 16


def take_backup(place: Path, users: ForgottenTimes, installation: str = "first") -> BackupStore:
    def dump(path: Path) -> tuple[DatabaseKind, Tables]:
        path.write_bytes(b"a dump")
        return "sqlite", Tables(revision="1", readable_by="1")

    store = BackupStore(str(place))
    store.take(installation, f"{place}-artifacts", dump, tuple, lambda: users)
    return store


def test_the_ledger_of_forgotten_users_grows_with_each_backup(tmp_path: Path) -> None:
    place = tmp_path / "backups"
    take_backup(place, {})
    assert not (place / "forgotten.json").exists(), "nobody was forgotten"
    take_backup(place, {"films": {ANNA: NOW, BERTA: NOW}})
    hour = timedelta(hours=1)
    store = take_backup(place, {"films": {ANNA: NOW - hour, BERTA: NOW + hour}, "books": {ANNA: NOW}})
    assert store.ledger("first").users == {"films": {ANNA: NOW, BERTA: NOW + hour}, "books": {ANNA: NOW}}
    store.prune(1, NOW + timedelta(days=400))
    assert take_backup(place, {}).ledger("first").users["films"][ANNA] == NOW, "to the microsecond, and of a deleted backup too"


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("{", Damaged, r"forgotten.json: the ledger of forgotten users is damaged; restore this file from a copy"),
        ('{"version": 2}', Invalid, "a newer release wrote"),
        (
            '{"version": 1, "installation": "first", "users": {"films": {"anna": "2026-01-01T00:00:00Z"}}}',
            Invalid,
            "forgotten.json: users.films",
        ),
        ('{"version": 1, "installation": "other"}', Conflict, "is of another installation"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_and_never_overwritten(
    tmp_path: Path, content: str, error: type[EyasError], message: str
) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    (place / "forgotten.json").write_text(content)
    with pytest.raises(error, match=message):
        take_backup(place, {"films": {ANNA: NOW}})
    assert [path.name for path in place.iterdir()] == ["forgotten.json"]
    assert (place / "forgotten.json").read_text() == content


def fill(engine: Engine, *names: str) -> None:
    """Writes events and feature values of users."""
    ids, log = id_hash(engine), SqlEventLog(engine)
    for name in names:
        key = ids.key(name)
        log.impressions([shown(f"request-of-{name}", NOW, user=key)])
        take(log, did(10, NOW, user=key, user_id=name, id=f"event-of-{name}"))
        row = StoredRow(key, NOW, {"mood": f"of-{name}"})
        SqlFeatureStore(engine).write("films", "user", [row])
        SqlFeatureHistory(engine).append("films", "user", [row])


def ledger_of(engine: Engine) -> SqlForgottenUsers:
    return SqlForgottenUsers(engine, UserDigest.of_installation(id_hash(engine).secret))


def forget(engine: Engine, name: str, days: int = 0) -> None:
    ledger_of(engine).forget("films", id_hash(engine).key(name), lambda: NOW + timedelta(days=days))


def without(rows_by_table: dict[str, list[str]], *words: str) -> dict[str, list[str]]:
    return {
        table: [row for row in rows if not any(word in row for word in words)]
        for table, rows in rows_by_table.items()
        if table not in ("installation", "forgotten_users", "alembic_version")
    }


@pytest.mark.requirement("U-12")
def test_a_restored_backup_revives_no_session(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    SqlSessions(engine).add(Session("s1", "digest", now, now + LIFE, token_id="t1", token_digest="digest"), now)
    home.back_up(tmp_path / "backups")
    assert len(home.rows()["sessions"]) == 1
    target = new_home()
    target.restore(tmp_path / "backups")
    assert target.rows()["sessions"] == []


@pytest.mark.parametrize("revision", [None, "event_deletions"])
def test_users_who_were_forgotten_after_a_backup_are_forgotten_again(
    home: Installation, engine: Engine, new_home: Any, tmp_path: Path, revision: str | None
) -> None:
    """Also in a backup of a release that could not forget."""
    fill(engine, "anna", "berta")
    if revision is not None:
        downgrade(engine, revision)
    before = home.rows()
    first = home.back_up(tmp_path / "backups").backup
    upgrade(engine)
    forget(engine, "anna")
    home.back_up(tmp_path / "backups")
    target = new_home()
    assert target.restore(tmp_path / "backups", first.name).forgotten_again == 1
    key = str(id_hash(engine).key("anna"))
    rows = target.rows()
    assert sum("anna" in row or key in row for rows_of_table in before.values() for row in rows_of_table) == 4
    rows.setdefault("sessions", [])
    before.setdefault("sessions", [])  # a release without sessions
    assert without(rows) == without(before, "anna", key)
    assert (len(rows["forgotten_users"]), len(rows["interactions"]), len(rows["feature_values"])) == (1, 1, 1)
    restored = open_engine(target.url)
    assert list(ledger_of(restored).pending()) == ["films"], "the restored archive of events may have the user"
    restored.dispose()
    assert new_home().restore(tmp_path / "backups").forgotten_again == 0, "the newest backup knows"


def test_what_a_user_did_after_it_was_forgotten_is_restored(home: Installation, engine: Engine, new_home: Any, tmp_path: Path) -> None:
    forget(engine, "anna", days=-1)
    fill(engine, "anna")
    home.back_up(tmp_path / "backups")
    target = new_home()
    assert target.restore(tmp_path / "backups").forgotten_again == 0
    assert without(target.rows()) == without(home.rows())
    assert len(target.rows()["interactions"]) == 1


def test_a_database_whose_users_cannot_be_forgotten_again_is_not_restored(
    home: Installation, engine: Engine, new_home: Any, tmp_path: Path
) -> None:
    fill(engine, "anna")
    first = home.back_up(tmp_path / "backups").backup
    forget(engine, "anna")
    home.back_up(tmp_path / "backups")
    target = new_home()
    options = target.options | {"features": "redis://127.0.0.1:1/0"}
    with pytest.raises(Unavailable, match=r"cannot be forgotten again: .*(nothing is restored|restore into an empty one)"):
        wiring.restore(options, str(tmp_path / "backups"), first.name, False, quiet)
    if target.url.startswith("sqlite"):
        assert not (target.folder / "eyas.db").exists()
        assert target.restore(tmp_path / "backups", first.name).forgotten_again == 1
    (tmp_path / "backups/forgotten.json").write_text("{")
    target = new_home()
    with pytest.raises(Damaged, match="ledger of forgotten users is damaged"):
        target.restore(tmp_path / "backups", first.name)
    assert target.files() == {}


OLD, NEW, OTHER = (f"interactions/date=2026-01-0{day}/part-0000{number}.parquet" for day, number in ((1, 0), (1, 1), (2, 0)))


def test_replaced_parts_of_the_archive_are_neither_copied_nor_missing_nor_restored(
    home: Installation, engine: Engine, new_home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.compact("compact-films-0-etl-1", {OLD: "with anna", OTHER: "other day"})
    home.compact("compact-films-0-etl-2", {OLD: "with anna, of a late try"})
    home.compact("compacted-films-0", {OLD: "with anna", OTHER: "other day"})
    home.compact("compacted-books-0", {OLD: "books"})
    home.compact("compact-films-1-etl-1", {NEW: "without her"}, replaces=[OLD, OTHER])
    first = home.back_up(tmp_path / "backups").backup

    def erase(*arguments: Any) -> Any:
        manifest = home.compact("compacted-films-1", {NEW: "without her"}, replaces=[OLD])
        assert manifest.files
        for content in ("with anna", "with anna, of a late try"):
            home.artifacts.erase(home._put(content))
        return dumps.dump(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(wiring, "dump", erase)
        second = home.back_up(tmp_path / "backups").backup
    third = home.back_up(tmp_path / "backups").backup
    assert second.missing == third.missing == ()
    copied = {(tmp_path / "backups/blobs" / file.sha256[:2] / file.sha256).read_bytes() for file in third.blobs}
    assert copied == {b"rows", b"items", b"weights", b"other day", b"books", b"without her"}
    assert set(second.blobs) == set(third.blobs) < set(first.blobs)
    before = home.files()
    home.restore(tmp_path / "backups", first.name, artifacts_only=True)
    assert home.files() == before, "an older backup does not bring erased parts back"
    target = new_home()
    target.restore(tmp_path / "backups", third.name)
    assert target.files() == before


def test_forgotten_users_are_removed_from_restored_archives_again(home: Installation, engine: Engine, tmp_path: Path) -> None:
    forget(engine, "anna")
    ledger = ledger_of(engine)
    ledger.mark_archived("films", {user.digest: user.at for user in ledger.all("films")})
    assert not ledger.pending()
    home.back_up(tmp_path / "backups")
    home.restore(tmp_path / "backups", artifacts_only=True)
    assert list(ledger.pending()) == ["films"]


def test_a_backup_before_the_first_start_makes_no_key(tools: None, new_home: Any, tmp_path: Path) -> None:
    home = new_home()
    engine = open_engine(home.url)
    upgrade(engine)
    engine.dispose()
    before = home.rows()
    assert home.back_up(tmp_path / "backups").backup.installation == ""
    assert home.rows() == before
