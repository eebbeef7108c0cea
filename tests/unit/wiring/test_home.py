"""The platform's folder: one platform at a time, and its secrets its own."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from services.home import Endpoint, Home, check_first_token
from shared.domain.access import token_id, token_text
from shared.domain.errors import Conflict, Invalid
from tests.support.secret_files import write_secret


def test_a_token_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.open()
    token = home.token()
    assert token_id(token) == "bootstrap"
    assert home.token() == token
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home/token").stat().st_mode & 0o777 == 0o600
    home.close()


def test_an_empty_token_is_said_before_anything_starts(tmp_path: Path) -> None:
    write_secret(tmp_path / "token", "")
    with pytest.raises(Invalid, match="token is empty: delete it"):
        Home(tmp_path).token()


def test_a_deleted_token_is_gone_and_another_is_made(tmp_path: Path) -> None:
    before = Home(tmp_path).token()
    (tmp_path / "token").unlink()
    assert Home(tmp_path).token() != before


@pytest.mark.parametrize(
    "text, said",
    [
        ("admin", "too easy to guess"),
        ("x" * 31, "too easy to guess"),
        ("x" * 20 + " " + "x" * 20, "too easy to guess"),
        (token_text("t1", bytes(32)), "belongs to a user"),
    ],
)
def test_the_first_token_is_held_to_something(tmp_path: Path, text: str, said: str) -> None:
    write_secret(tmp_path / "token", text)
    with pytest.raises(Invalid, match=said):
        Home(tmp_path).token()
    with pytest.raises(Invalid, match=f"a Secret: .*{said}"):
        check_first_token(text, "a Secret")


def test_a_token_of_an_older_form_goes_on(tmp_path: Path) -> None:
    write_secret(tmp_path / "token", "x" * 43 + "\n")
    assert Home(tmp_path).token() == "x" * 43


def test_two_platforms_do_not_share_a_home(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    first.open()
    with pytest.raises(Conflict, match="in use by another platform"):
        second.open()
    first.close()
    second.open()
    second.close()


@pytest.mark.parametrize("fault, way", [(errno.ENOSPC, "free some space"), (errno.EACCES, "choose another with --home or EYAS_HOME")])
def test_a_home_that_takes_no_file_is_one_line_and_leaves_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, way: str
) -> None:
    home = Home(tmp_path)
    home.open()

    def full(_descriptor: int) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", full)
    writes = (home.token, lambda: home.announce(Endpoint("http://127.0.0.1:1", "http://127.0.0.1:2", 3)))
    for write in writes:
        with pytest.raises(Invalid) as caught:
            write()
        assert str(caught.value) == f"home {tmp_path} can't be written: {os.strerror(fault)}; {way}"
    assert [one.name for one in tmp_path.iterdir()] == ["lock"]
    home.close()
