"""A program: in an environment with the control side alone, what must import does, what must be absent is, pages find their templates."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

NEEDED = tuple(f"eyas.services.{name}" for name in ("api.app", "cli.main", "console", "control.reconcile", "store.migrate"))
ABSENT = ("tensorflow", "keras", "torch", "polars", "pandas", "pyarrow", "onnx", "onnxruntime", "pytriton")


def main() -> int:
    present = [name for name in ABSENT if importlib.util.find_spec(name)]
    if present:
        sys.stderr.write(f"the control side brings what it must not: {', '.join(present)}\n")
        return 1
    for name in NEEDED:
        importlib.import_module(name)
    from eyas.services.console import assets

    for name in ("console.css", "console.js", "eyas.svg"):
        assets.address(name)
    if not (Path(assets.__file__).parent / "templates" / "base.html").is_file():
        sys.stderr.write("the console came without its templates\n")
        return 1
    sys.stdout.write(f"the control side imports {', '.join(NEEDED)} without {', '.join(ABSENT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
