"""Which sources stages run: their digest, so that what another release has published never stands for this one's."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from shared import __version__

_PACKAGES = ("pipelines", "shared")


def code_version(image: str = "") -> str:
    """The version, the digest of the sources of what stages import, and the image that they run in, where there is one."""
    whole = hashlib.sha256()
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        for root in sorted(found.submodule_search_locations or ()) if found else ():
            for path in sorted(Path(root).rglob("*.py")):
                whole.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                whole.update(hashlib.sha256(path.read_bytes()).digest())
    return " ".join(filter(None, (__version__, whole.hexdigest()[:32], image)))
