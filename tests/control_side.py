"""A program: in an environment with the control side alone, what must import does, and what must be absent is."""

from __future__ import annotations

import importlib
import importlib.util
import sys

NEEDED = ("services.api.app", "services.cli.main", "services.control.reconcile", "services.store.migrate")
ABSENT = ("tensorflow", "keras", "torch", "polars", "pandas", "pyarrow", "onnx", "onnxruntime", "pytriton")


def main() -> int:
    present = [name for name in ABSENT if importlib.util.find_spec(name)]
    if present:
        sys.stderr.write(f"the control side brings what it must not: {', '.join(present)}\n")
        return 1
    for name in NEEDED:
        importlib.import_module(name)
    sys.stdout.write(f"the control side imports {', '.join(NEEDED)} without {', '.join(ABSENT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
