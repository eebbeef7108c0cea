"""Files that hold a secret, as the platform accepts them."""

from __future__ import annotations

from pathlib import Path


def write_secret(path: Path, text: str) -> None:
    """Writes a file that its owner alone can open."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
