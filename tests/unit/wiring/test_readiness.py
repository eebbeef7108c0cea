"""What anybody may know of a part that is away: that it is."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from services.home import Home
from services.settings import Settings
from services.wiring.state import State
from shared.domain.errors import Unavailable


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
            "not ready: the database eyas at db.internal:5432 doesn't answer"
        ]
        assert state.missing() == []
