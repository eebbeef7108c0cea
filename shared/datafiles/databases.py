"""The operator's databases by name: EYAS_DATABASES is the path of a secret file, one `name: URL` a line. Specs use names, never URLs.

No message contains a URL, because it may include a password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shared.contracts.yaml12 import load
from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file

VARIABLE = "EYAS_DATABASES"
SQLITE = "sqlite:///"
_GOOD = ("postgresql://", f"{SQLITE}/")


class Databases:
    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = dict(urls)

    def url(self, name: str) -> str:
        if name not in self._urls:
            names = ", ".join(sorted(self._urls)) or "none"
            raise Invalid(f"from: unknown database '{name}'; known: {names}; add it to the file that {VARIABLE} names")
        return self._urls[name]


def databases(environment: Mapping[str, str] | None = None) -> Databases:
    path = (os.environ if environment is None else environment).get(VARIABLE)
    return Databases(_read(Path(path)) if path else {})


def _read(path: Path) -> dict[str, str]:
    try:
        text = read_secret_file(path)
    except Invalid as error:
        raise Invalid(f"{VARIABLE}: {error}") from None
    try:
        urls = load(text, str(path))
    except Invalid:
        raise Invalid(f"{VARIABLE}: {path} is not YAML: write lines such as shop: postgresql://reader:PASSWORD@host:5432/shop") from None
    if not isinstance(urls, dict) or not all(isinstance(url, str) for url in urls.values()):
        raise Invalid(f"{VARIABLE}: {path} must have one 'name: URL' per line")
    for name, url in urls.items():
        if not url.startswith(_GOOD):
            raise Invalid(
                f"{VARIABLE}: {path}: the URL of '{name}' must begin with postgresql://, or with sqlite://// for an absolute path"
            )
    return {str(name): url for name, url in urls.items()}
