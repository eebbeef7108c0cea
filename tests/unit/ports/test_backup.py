"""Backup and restore of a database and of its artifacts, through the functions of the commands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, select, text

from services.store import dumps, migrate
from services.store.engine import open_engine, sqlite_url
from services.store.installation import id_hash
from services.store.migrate import downgrade, upgrade
from services.store.recommenders import SqlRecommenders
from services.store.tokens import SqlTokens
from services.wiring import backup as wiring
from services.wiring.backup import BackupResult, back_up
from shared.artifacts import FsspecArtifacts
from shared.artifacts.backups import BackupStore
from shared.contracts.stage import File, Manifest
from shared.domain.errors import Conflict, Damaged, EyasError, Invalid, NotFound, Unavailable, Unsupported
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
    shutil.copy(Path(__file__).parents[2] / "support/newer_release/0005_notes.py", newer / "versions")
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
