"""Files with secrets: refused when other users can open them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from services.home import Home
from services.settings import Settings, read_secret
from shared.datafiles.databases import databases
from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file
from tests.support.secret_files import write_secret

pytestmark = pytest.mark.requirement("C-01")

TOKEN = "x" * 43


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_secret(tmp_path / "token", TOKEN)
    return tmp_path / "token"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o666, 0o444])
def test_a_file_that_other_users_can_open_is_refused_with_the_command_that_mends_it(file: Path, mode: int, monkeypatch) -> None:
    file.chmod(mode)
    message = f"secret file {file}: other users can open it (mode {mode:04o}); run: chmod 600 {file}"
    monkeypatch.setenv("EYAS_DATABASE_PASSWORD_FILE", str(file))
    for read in (
        Home(file.parent).token,
        Settings.read({}).password,
        lambda: read_secret(file, "token_file"),
        lambda: databases({"EYAS_DATABASES": str(file)}),
    ):
        with pytest.raises(Invalid) as caught:
            read()
        assert message in str(caught.value)
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_owner_alone_is_read_silently(file: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    file.chmod(mode)
    assert read_secret_file(file) == TOKEN
    assert caplog.text == ""


@pytest.mark.parametrize(("owner", "warned"), [(0, False), (1000, True)])
def test_a_group_may_read_what_kubernetes_mounts_and_is_warned_of_elsewhere(
    file: Path, owner: int, warned: bool, monkeypatch, caplog
) -> None:
    file.chmod(0o440)
    state = file.stat()
    monkeypatch.setattr("shared.secret_file.os.fstat", lambda _: type(state)((state.st_mode, *state[1:4], owner, *state[5:])))
    with caplog.at_level(logging.WARNING):
        assert read_secret_file(file) == TOKEN
    assert (f"secret file: its group can open it path={file} mode=0440" in caplog.text) is warned


def test_the_mode_is_that_of_the_file_behind_the_links_of_a_mounted_secret(tmp_path: Path) -> None:
    """As Kubernetes writes it: token -> ..data/token, and ..data -> a folder with a time for a name."""
    folder = tmp_path / "..2026_11_25"
    folder.mkdir()
    write_secret(folder / "token", TOKEN)
    (tmp_path / "..data").symlink_to(folder.name)
    (tmp_path / "token").symlink_to("..data/token")
    assert read_secret_file(tmp_path / "token") == TOKEN
    (folder / "token").chmod(0o644)
    with pytest.raises(Invalid, match=r"\(mode 0644\)"):
        read_secret_file(tmp_path / "token")


def test_a_path_with_a_space_is_quoted_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "my token").write_text(TOKEN)
    (tmp_path / "my token").chmod(0o644)
    with pytest.raises(Invalid, match=rf"chmod 600 '{tmp_path}/my token'$"):
        read_secret_file(tmp_path / "my token")
