"""The home: the folder with an embedded platform's state, locked so that one platform at a time uses it."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shared.domain.access import OWNER, token_id, token_text
from shared.domain.errors import Conflict, Invalid, is_disk_fault
from shared.secret_file import read_secret_file

_SHORTEST = 32


def check_first_token(token: str, place: str) -> None:
    """Raises Invalid if the admin's token is easy to guess or belongs to another identity."""
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise Invalid(f"{place}: the token is too easy to guess: expected at least {_SHORTEST} printable characters without a space")
    if token_id(token) not in (None, OWNER.token_id):
        raise Invalid(f"{place}: the token belongs to a user; the platform needs its own first token")


@dataclass(frozen=True)
class Endpoint:
    """Addresses of the running platform."""

    url: str
    metrics_url: str
    pid: int


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.database = self.folder / "eyas.db"
        self.artifacts = self.folder / "artifacts"
        self.work = self.folder / "work"
        self.triton = self.folder / "triton"
        self._endpoint = self.folder / "endpoint.json"
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Creates and locks the folder; raises Conflict if another platform uses it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("a+")
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise Conflict(
                f"home {self.folder} is in use by another platform (process {holder}): stop it or choose another --home"
            ) from None
        self._lock = lock
        try:
            lock.seek(0)
            lock.truncate()
            lock.write(f"{os.getpid()}\n")
            lock.flush()
        except OSError as error:
            with suppress(OSError):
                self.close()
            raise self._unwritable(error) from None

    def close(self) -> None:
        self._endpoint.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def token(self) -> str:
        """Returns the token, which the first start creates, readable by its owner only.

        Deleting or changing the file revokes the token at the next start: no other copy exists.
        """
        path = self.folder / "token"
        if not path.exists():
            self._write(path, token_text(OWNER.token_id, secrets.token_bytes(32)))
        token = read_secret_file(path).strip()
        if not token:
            raise Invalid(f"{path} is empty: delete it, and the next start makes a new token")
        check_first_token(token, str(path))
        return token

    def announce(self, endpoint: Endpoint) -> None:
        self._write(self._endpoint, json.dumps(endpoint.__dict__))

    def _write(self, path: Path, text: str) -> None:
        """Writes the file atomically, readable by its owner only."""
        part = path.with_suffix(".part")
        try:
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> Invalid:
        way = "free some space" if is_disk_fault(error) else "choose another with --home or EYAS_HOME"
        return Invalid(f"home {self.folder} can't be written: {error.strerror}; {way}")
