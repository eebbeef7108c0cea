"""Digest of the code that stages run, so that stage reuse never takes another release's outputs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from eyas import __version__

_PACKAGES = tuple(f"{__name__.partition('services')[0]}{name}" for name in ("pipelines", "shared"))


def code_version(images: str = "") -> str:
    """Returns the version, and a digest of the stages' sources and images. Without images, stages run in this process's environment: then
    the digest covers the interpreter and the installed packages.
    """
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
