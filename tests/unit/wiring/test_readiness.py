"""What anybody may know of a part that is away: that it is."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from services.home import Home
from services.settings import Settings
from services.store import database_files
from services.wiring.migration import migrate
from services.wiring.state import State
from shared.domain.errors import Invalid, Unavailable


def test_where_the_database_is_stands_in_the_log_alone_and_once(tmp_path: Path, monkeypatch, caplog) -> None:
    home = Home(tmp_path / "home")
    home.open()
    with ExitStack() as undo:
        undo.callback(home.close)
        state = State(Settings(home=home.folder), home, undo)
        assert state.missing() == []

        def away():
            raise Unavailable("the database eyas at db.internal:5432 doesn't answer")

        with monkeypatch.context() as patched:
            patched.setattr(state.routes, "all", away)
            for _ in range(3):
                assert state.missing() == ["the database doesn't answer"]
        assert [one.getMessage() for one in caplog.records if "db.internal" in one.getMessage()] == [
            "readiness: failed error=the database eyas at db.internal:5432 doesn't answer"
        ]
        assert state.missing() == []


def open_state(home: Home, undo: ExitStack, **more: object) -> State:
    return State(Settings.read({"home": home.folder, **more}), home, undo)


@pytest.mark.parametrize("own", [True, False], ids=["the home's", "named by its URL"])
def test_an_empty_database_is_refused_where_artifacts_of_a_former_one_are_left(tmp_path: Path, own: bool) -> None:
    home = Home(tmp_path / "home")
    path = home.database if own else tmp_path / "elsewhere" / "state.db"
    more = {} if own else {"database_url": f"sqlite:///{path}"}
    with ExitStack() as undo:
        state = open_state(home, undo, **more)
        assert path.exists()
        (tmp_path / "file").write_text("a model")
        state.artifacts.put(tmp_path / "file")
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    for _ in range(2):
        with ExitStack() as undo, pytest.raises(Invalid) as caught:
            open_state(home, undo, **more)
        assert str(caught.value) == (
            f"database {path} is missing or empty, but {home.artifacts} has artifacts of an earlier database: move the database's files"
            f" back or restore a backup; to start empty, move {home.artifacts} away"
        )
        assert not path.exists(), "nothing was made"
    home.artifacts.rename(tmp_path / "away")
    with ExitStack() as undo:
        assert open_state(home, undo, **more).missing() == []


def test_a_migration_does_not_begin_empty_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    (home.artifacts / "manifests").mkdir(parents=True)
    (home.artifacts / "manifests" / "r1-etl-1.json").write_text("{}")
    monkeypatch.setenv("EYAS_HOME", str(home.folder))
    with pytest.raises(Invalid, match="is missing or empty"):
        migrate(None)
    assert not home.database.exists()


def test_a_full_disk_is_said_to_everybody_without_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    monkeypatch.setattr(database_files, "_CALM", 0.0)
    with ExitStack() as undo:
        state = open_state(home, undo)
        files = database_files.files_of(state.routes._engine)
        files.no_room("database or disk is full")
        monkeypatch.setattr(files, "written", lambda: None)
        assert state.missing() == ["the disk of the database is full"]
        monkeypatch.undo()
        monkeypatch.setattr(database_files, "_CALM", 0.0)
        assert state.missing() == [], "looking writes a little, and that succeeds"
