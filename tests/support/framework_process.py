"""Arrays that a program of the tests makes in a process of its own: a framework is one for the life of a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]


def made_apart(program: str, *arguments: str, out: Path) -> Mapping[str, Any]:
    """`python -m PROGRAM ARGUMENTS` with `out` among its arguments, which it has written."""
    command = [sys.executable, "-m", program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    with np.load(out, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}
