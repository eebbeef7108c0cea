"""Home folder of the platform on this machine; address and token from the global options, or from the home."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError
from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file

if TYPE_CHECKING:
    from services.cli.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"


def default_home() -> Path:
    return Path(os.environ.get("EYAS_HOME") or "var/eyas")


def endpoint(home: Path) -> str:
    """Returns the address that `eyas up` wrote, because its port may differ from the default."""
    try:
        url = json.loads((home / "endpoint.json").read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_URL
    return url if isinstance(url, str) else DEFAULT_URL


def token(file: Path) -> str:
    try:
        text = read_secret_file(file).strip()
    except Invalid as error:
        hint = "" if os.access(file, os.R_OK) else "; start the platform with `eyas up`, or set its file with --token-file"
        raise ReportedError(f"{error}{hint}", Exit.WRONG) from None
    return usable(text, str(file))


def usable(token: str, place: str) -> str:
    if not token or not token.isascii() or not token.isprintable():
        raise ReportedError(f"{place}: no usable token; expected printable ASCII characters", Exit.WRONG)
    return token


@dataclass(frozen=True)
class ClientSession:
    url: str | None = None
    token_file: Path | None = None
    token: str | None = None

    def client(self, seconds: float | None = None) -> Client:
        """Opens a client; `seconds` is its timeout."""
        from services.cli.client import Client

        home = default_home()
        url = self.url or endpoint(home)
        secret = usable(self.token, "--token or EYAS_TOKEN") if self.token else token(self.token_file or home / "token")
        return Client(url, secret) if seconds is None else Client(url, secret, seconds=seconds)
