"""Build hook of the wheel: moves the three packages below `eyas` and writes their names so, in imports and in texts that name a module.

So an installed Eyas claims one top-level name, and its files are ordinary ones: line numbers, tracebacks and type checkers agree with them.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("shared", "services", "pipelines")
_NAMES = "|".join(PACKAGES)
_STATEMENT = re.compile(rf"^(\s*(?:from|import)\s+)({_NAMES})\b", re.M)
_DOTTED = re.compile(rf"(?<![\w./])({_NAMES})\.([a-z_]\w*)")


class OneName(BuildHookInterface):  # type: ignore[misc]  hatchling has no types here
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="eyas-wheel-"))
        root = Path(self.root)
        for package in PACKAGES:
            shutil.copytree(root / package, self._folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        for path in self._folder.rglob("*.py"):
            path.write_text(renamed(path.read_text(), root))
        build_data["force_include"] |= {str(self._folder / package): f"eyas/{package}" for package in PACKAGES}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self._folder)


def renamed(source: str, root: Path) -> str:
    """Returns the source with `eyas.` before each name of a module of the three packages."""

    def prefixed(match: re.Match[str]) -> str:
        path = root / match[1] / match[2]
        return f"eyas.{match[0]}" if path.is_dir() or path.with_suffix(".py").is_file() else match[0]

    return _DOTTED.sub(prefixed, _STATEMENT.sub(r"\1eyas.\2", source))
