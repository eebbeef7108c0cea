"""Resolves each lock file for its Python and for Linux on x86_64 from the configured package index: `make check-locks`.

A lock is complete if it resolves to its own pins. Prints the number and the size of the wheels of each lock.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from rich.console import Console

ROOT = Path(__file__).parents[2]
PLATFORMS = [*(f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)), "manylinux2014_x86_64", "manylinux2010_x86_64", "linux_x86_64"]
SOURCE_ONLY = ("betterproto", "merlin-core", "merlin-dataloader", "nvtabular", "stringcase")
"""Packages that have no wheels: pip builds them from their source archives."""
OMITTED: Mapping[str, frozenset[str]] = {"images/torch-gpu.lock": frozenset({"nvidia-nccl-cu12"})}
"""Requirements that a lock leaves out: XGBoost's NCCL has the path of the file of torch's NCCL."""
PARTIAL = "services/triton/environment.lock"
"""A lock that is installed without requirements, for the Pythons of Triton's stub."""
UV = ["pip", "compile", "--quiet", "--no-header", "--format=pylock.toml", "--python-platform=x86_64-manylinux_2_36"]


class LockFault(Exception):
    """A lock that does not resolve to its own pins."""


@dataclass(frozen=True)
class Download:
    wheels: int
    sources: int
    size: int


def locks() -> list[tuple[str, tuple[int, int]]]:
    """Returns each lock file with each of its Python versions."""
    images = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "images").glob("*.lock"))
    shared = [(lock, (3, minor)) for lock in ("requirements.lock", "requirements-dev.lock") for minor in (11, 12, 13)]
    return [(lock, (3, 11)) for lock in images] + shared + [(PARTIAL, (3, minor)) for minor in (11, 12)]


def check(lock: str, python: tuple[int, int]) -> Download:
    """Returns what pip downloads for a lock; raises LockFault if a pin is missing, has no wheel or conflicts with another."""
    sources = [f"--no-binary={name}" for name in SOURCE_ONLY]
    version = f"--python-version={python[0]}.{python[1]}"
    partial = ["--no-deps"] if lock == PARTIAL else []
    command = [str(Path(sys.executable).with_name("uv")), *UV, version, *partial, "--only-binary=:all:", *sources, lock]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if completed.returncode:
        raise LockFault(completed.stderr.strip())
    packages: list[dict[str, Any]] = tomllib.loads(completed.stdout)["packages"]
    pins = {line.split("==")[0] for line in (ROOT / lock).read_text().splitlines()}
    missing = sorted({package["name"] for package in packages} - pins - OMITTED.get(lock, frozenset()))
    if missing:
        raise LockFault(f"required, but not pinned: {', '.join(missing)}; run make lock")
    files = [_file(package, python) for package in packages if package["name"] in pins]
    wheels = sum(file["url"].endswith(".whl") for file in files)
    return Download(wheels, len(files) - wheels, sum(file.get("size") or _content_length(file["url"]) for file in files))


def _file(package: dict[str, Any], python: tuple[int, int]) -> dict[str, Any]:
    """Returns the wheel that pip prefers on a Python, or else the source archive."""
    wheels: list[dict[str, Any]] = package.get("wheels", [])
    if not wheels:
        source: dict[str, Any] = package["sdist"]
        return source
    interpreter = f"cp{python[0]}{python[1]}"
    tags = [*cpython_tags(python, platforms=PLATFORMS), *compatible_tags(python, interpreter, PLATFORMS)]
    order = {tag: place for place, tag in enumerate(tags)}
    return min(wheels, key=lambda wheel: min(order.get(tag, len(order)) for tag in _tags(wheel["url"])))


def _tags(url: str) -> frozenset[Tag]:
    return parse_wheel_filename(unquote(url.rsplit("/", 1)[1]))[3]


def _content_length(url: str) -> int:
    return int(httpx.head(url, follow_redirects=True).raise_for_status().headers["Content-Length"])


def main() -> int:
    console, faults = Console(soft_wrap=True), 0
    for lock, python in locks():
        title = f"{lock}, Python {python[0]}.{python[1]}"
        with console.status(f"resolving {title}"):
            try:
                download = check(lock, python)
            except LockFault as fault:
                faults += 1
                console.print(f"{title}: {fault}", style="red", markup=False)
                continue
        sources = f" and {download.sources} source archives" if download.sources else ""
        console.print(f"{title}: {download.wheels} wheels{sources}, {download.size / 1e6:,.0f} MB", highlight=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
