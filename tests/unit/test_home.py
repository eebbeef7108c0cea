"""The platform's folder: one platform at a time, and its secrets its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.home import Home
from shared.domain.errors import Conflict, Invalid


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.open()
    token = home.token()
    assert len(token) > 30
    assert home.token() == token
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home/token").stat().st_mode & 0o777 == 0o600
    home.close()


def test_an_empty_token_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("")
    with pytest.raises(Invalid, match="token is empty: delete it"):
        Home(tmp_path).token()


def test_two_platforms_do_not_share_a_home(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    first.open()
    with pytest.raises(Conflict, match="in use by another platform"):
        second.open()
    first.close()
    second.open()
    second.close()
