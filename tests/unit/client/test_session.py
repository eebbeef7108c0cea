"""Address and token: arguments, environment, and the home of a platform on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from eyas_client import Client, EyasError
from eyas_client.session import find_session

from services.home import Endpoint, Home
from tests.unit.client.conftest import TOKEN, URL


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """The home of a running platform, as the platform itself writes it."""
    for name in ("EYAS_URL", "EYAS_TOKEN", "EYAS_TOKEN_FILE", "EYAS_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    home = Home(tmp_path / "var/eyas")
    home.open()
    home.token()
    home.announce(Endpoint("http://127.0.0.1:4711", "http://127.0.0.1:4712", 1))
    yield home
    home.close()


def found(url: str | None = None, token: str | None = None, home: Path | None = None) -> tuple[str, str]:
    session = find_session(url, token, home)
    return session.url, session.token.get_secret_value()


def test_the_home_of_this_machine_is_the_default(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert found() == ("http://127.0.0.1:4711", home.token())
    assert Client().url == "http://127.0.0.1:4711"
    monkeypatch.chdir("/")
    assert found(home=home.folder) == ("http://127.0.0.1:4711", home.token())
    monkeypatch.setenv("EYAS_HOME", str(home.folder))
    assert found() == ("http://127.0.0.1:4711", home.token())
    (home.folder / "endpoint.json").write_text("[]")
    assert found()[0] == "http://127.0.0.1:8080"
    (home.folder / "endpoint.json").unlink()
    assert found()[0] == "http://127.0.0.1:8080"


def test_arguments_go_before_the_environment_and_this_before_the_home(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token-file"
    file.write_text(" from-file\n")
    file.chmod(0o600)
    monkeypatch.setenv("EYAS_TOKEN_FILE", str(file))
    assert found() == ("http://127.0.0.1:4711", "from-file")
    monkeypatch.setenv("EYAS_URL", f"{URL}/")
    monkeypatch.setenv("EYAS_TOKEN", "from-variable")
    assert found() == (URL, "from-variable")
    assert found("https://other.test/eyas", TOKEN) == ("https://other.test/eyas", TOKEN)


def test_a_token_file_that_others_can_read_is_refused(home: Home) -> None:
    file = home.folder / "token"
    secret = file.read_text()
    file.chmod(0o644)
    with pytest.raises(EyasError, match=r"other users can open this secret \(mode 0644\); run: chmod 600") as fault:
        found()
    assert secret not in str(fault.value)
    file.unlink()
    with pytest.raises(EyasError, match="cannot be read: No such file or directory; start the platform with `eyas up`"):
        found()


@pytest.mark.parametrize("token", [" \n", "two words", "two\nlines", "tökén"])
def test_a_token_that_no_header_can_have_is_refused_without_being_shown(home: Home, token: str) -> None:
    with pytest.raises(EyasError, match=r"^token: no usable token") as fault:
        found(URL, token)
    assert token.strip() == "" or token not in str(fault.value)


@pytest.mark.parametrize(
    "url",
    ["platform:8080", "ftp://platform", "http://", "http://[::1", "http://a b", "http://me:secret@platform", "http://me@platform?secret=1",
     "http://platform?token=secret", "http://platform#secret"],
)  # fmt: skip
def test_an_address_is_http_without_secrets(home: Home, url: str) -> None:
    with pytest.raises(EyasError, match="is not an address") as fault:
        found(url, TOKEN)
    assert "secret" not in str(fault.value) or "#" in url


def test_proxies_of_the_environment_are_for_other_machines(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Client()._http.trust_env
    assert not Client("http://[::1]:80", TOKEN)._http.trust_env
    assert Client(URL, TOKEN)._http.trust_env


def test_the_endpoint_file_is_the_platforms(home: Home) -> None:
    assert json.loads((home.folder / "endpoint.json").read_text()).keys() == {"url", "metrics_url", "pid"}
