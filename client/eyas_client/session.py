"""Address and token of the platform, as the command `eyas` finds them: arguments, environment, or the home of a platform here."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from eyas_client.errors import EyasError

DEFAULT_URL = "http://127.0.0.1:8080"
_OTHERS = 0o007


@dataclass(frozen=True)
class Session:
    url: str
    token: SecretStr

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in ("127.0.0.1", "::1", "localhost")


def find_session(url: str | None, token: str | SecretStr | None, home: str | os.PathLike[str] | None) -> Session:
    folder = Path(home or os.environ.get("EYAS_HOME") or "var/eyas")
    address = url or os.environ.get("EYAS_URL") or _endpoint(folder)
    return Session(_checked_url(address), _token(token, folder))


def _endpoint(home: Path) -> str:
    """Returns the address that `eyas up` wrote."""
    try:
        url = json.loads((home / "endpoint.json").read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_URL
    return url if isinstance(url, str) else DEFAULT_URL


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, url))
    except ValueError:  # unclosed brackets or an invalid port
        good = False
    if not good or parts.username is not None or parts.query or parts.fragment:
        hidden = url.rpartition("@")[2].partition("?")[0]  # what is before or after may be a secret
        raise EyasError(f"'{hidden}' is not an address: expected for example {DEFAULT_URL}, without a user, a password or a query")
    return url.rstrip("/")


def _token(token: str | SecretStr | None, home: Path) -> SecretStr:
    if isinstance(token, SecretStr):
        return _usable(token, "token")
    if token:
        return _usable(SecretStr(token), "token")
    if variable := os.environ.get("EYAS_TOKEN"):
        return _usable(SecretStr(variable), "EYAS_TOKEN")
    file = Path(os.environ.get("EYAS_TOKEN_FILE") or home / "token")
    return _usable(_read_secret(file), str(file))


def _usable(token: SecretStr, name: str) -> SecretStr:
    text = token.get_secret_value().strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise EyasError(f"{name}: no usable token; expected printable ASCII characters without a space")
    return SecretStr(text)


def _read_secret(file: Path) -> SecretStr:
    try:
        with file.open() as stream:
            mode, token = os.fstat(stream.fileno()).st_mode, SecretStr(stream.read())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise EyasError(
            f"{file}: cannot be read: {reason}; start the platform with `eyas up`, or set EYAS_TOKEN or EYAS_TOKEN_FILE"
        ) from None
    if os.name == "posix" and mode & _OTHERS:
        raise EyasError(f"{file}: other users can open this secret (mode {mode & 0o777:04o}); run: chmod 600 {shlex.quote(str(file))}")
    return token
