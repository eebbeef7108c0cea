"""Which sources stages run: their digest, so that what another release has published never stands for this one's."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from shared import __version__

_PACKAGES = ("pipelines", "shared")


def code_version(images: str = "") -> str:
    """The version, and the digest of what stages run: their sources, and the images that they run in. Without images they run on this
    process's own interpreter and packages, which count as their sources do."""
    digest = hashlib.sha256(images.encode())
    if not images:
        installed = sorted(f"{distribution.name} {distribution.version}" for distribution in importlib.metadata.distributions())
        digest.update("\n".join((sys.version, *installed)).encode())
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for root in sorted(spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(root).rglob("*.py")):
                digest.update(f"{package}/{path.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__} {digest.hexdigest()[:32]}"
