"""Where the platform of this machine lives, and what a client reads there: the token, and the address."""

from __future__ import annotations

import json
import os
from pathlib import Path

from services.cli.exit_codes import Exit
from services.cli.faults import Refused
from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file

DEFAULT_URL = "http://127.0.0.1:8080"


def default_home() -> Path:
    return Path(os.environ.get("EYAS_HOME") or "var/eyas")


def endpoint(home: Path) -> str:
    """The address that `eyas up` wrote, for it may have had to take another port."""
    try:
        url = json.loads((home / "endpoint.json").read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_URL
    return url if isinstance(url, str) else DEFAULT_URL


def token(file: Path) -> str:
    try:
        text = read_secret_file(file).strip()
    except Invalid as error:
        hint = "" if os.access(file, os.R_OK) else "; start the platform with `eyas up`, or name its file by --token-file"
        raise Refused(f"{error}{hint}", Exit.WRONG) from None
    return usable(text, str(file))


def usable(token: str, place: str) -> str:
    if not token or not token.isascii() or not token.isprintable():
        raise Refused(f"{place} holds no usable token", Exit.WRONG)
    return token
