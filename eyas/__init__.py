"""Eyas: trains recommenders, gates them on quality, and rolls them into NVIDIA Triton.

An installed Eyas has its packages below this one: `eyas.shared`, `eyas.services`, `eyas.pipelines` (hatch_build.py). In a clone they stand
at the top of the repository, and the names below `eyas` are aliases of them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

__version__ = "0.1.0"


class _Alias(MetaPathFinder, InspectLoader):
    """Gives `eyas.NAME` the module `NAME`, the same object."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = importlib.util.find_spec(fullname.removeprefix("eyas.")) if fullname.startswith("eyas.") else None
        return spec and ModuleSpec(fullname, self, origin=spec.origin, is_package=spec.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.removeprefix("eyas."))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restores the module's own spec: it has been executed under its own name."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the code, for `python -m`."""
        spec = importlib.util.find_spec(fullname.removeprefix("eyas."))
        return spec.loader.get_code(fullname.removeprefix("eyas.")) if spec and isinstance(spec.loader, InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        return None


if not Path(__file__).with_name("shared").is_dir():
    sys.meta_path.insert(0, _Alias())  # before the finder of files, which would load a module twice
