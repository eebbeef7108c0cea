"""A Triton restarts for new certificates once, after the pause, and one server of a volume at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.triton.certificates import Certificates
from services.triton.rotation import RESTART_LIMIT, Rotation
from shared.domain.errors import Invalid


class Server:
    """One of several servers on a volume, with a clock that the test sets."""

    def __init__(self, volume: Path, name: str) -> None:
        self.now = 0.0
        self.certificates = Certificates(volume / f"tls-{name}")
        self.certificates.folder.mkdir()
        self.replace()
        (volume / name).mkdir()
        self.rotation = Rotation(self.certificates, volume / name, 120, lambda: self.now)

    def replace(self) -> None:
        for name in ("ca.crt", "tls.crt", "tls.key"):
            part = self.certificates.folder / f".{name}"
            part.write_text("new")
            part.replace(self.certificates.folder / name)


def test_a_restart_is_due_once_and_only_after_the_pause(tmp_path: Path) -> None:
    server = Server(tmp_path, "a")
    assert not server.rotation.due(), "nothing was replaced"
    server.replace()
    assert not server.rotation.due()
    server.now = 119
    assert not server.rotation.due()
    server.now = 120
    assert server.rotation.due()
    server.rotation.release(ready=True)
    server.now = 10_000
    assert not server.rotation.due()


def test_files_that_are_replaced_again_begin_the_pause_anew(tmp_path: Path) -> None:
    server = Server(tmp_path, "a")
    server.replace()
    assert not server.rotation.due()
    server.now = 100
    server.replace()
    assert not server.rotation.due()
    server.now = 130
    assert not server.rotation.due()
    server.now = 220
    assert server.rotation.due()
    server.rotation.release(ready=True)


def test_the_second_server_waits_until_the_first_one_has_its_versions(tmp_path: Path) -> None:
    first, second = Server(tmp_path, "a"), Server(tmp_path, "b")
    for server in (first, second):
        server.replace()
        assert not server.rotation.due()
        server.now = 200
    assert first.rotation.due()
    assert not second.rotation.due()
    first.rotation.release(ready=False)
    assert not second.rotation.due()
    first.rotation.release(ready=True)
    assert second.rotation.due()
    second.rotation.release(ready=True)


def test_a_server_that_never_gets_its_versions_holds_up_the_others_for_a_limited_time(tmp_path: Path) -> None:
    first, second = Server(tmp_path, "a"), Server(tmp_path, "b")
    for server in (first, second):
        server.replace()
        assert not server.rotation.due()
        server.now = 200
    assert first.rotation.due()
    first.now += RESTART_LIMIT + 1
    first.rotation.release(ready=False)
    assert second.rotation.due()
    second.rotation.release(ready=True)


def test_files_that_are_away_for_a_moment_change_nothing(tmp_path: Path) -> None:
    server = Server(tmp_path, "a")
    (server.certificates.folder / "tls.crt").unlink()
    assert not server.rotation.due()


def test_certificates_are_refused_when_one_is_missing_or_the_key_is_open(tmp_path: Path) -> None:
    certificates = Server(tmp_path, "a").certificates
    key = certificates.folder / "tls.key"
    key.chmod(0o644)
    with pytest.raises(Invalid, match=r"tls\.key: .*chmod 600"):
        certificates.check()
    key.chmod(0o600)
    certificates.check()
    (certificates.folder / "ca.crt").unlink()
    with pytest.raises(Invalid, match=r"Triton certificates: .*ca\.crt cannot be read"):
        certificates.check()
