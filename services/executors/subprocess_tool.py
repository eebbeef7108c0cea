"""A module of the stages' side that a person waits for: started as stages are, in their surroundings, and dead when its starter is.

One request goes in, one answer comes out; what it says of its progress goes to the terminal.
"""

from __future__ import annotations

import os
import subprocess
import sys

from services.executors.local import handed_on
from services.executors.processes import SHIM
from shared.datafiles.databases import VARIABLE


def run_tool(module: str, request: str) -> tuple[int, str]:
    """Its exit code and what it answered."""
    more = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("AWS_", "EYAS_ARTIFACTS_AWS_")) or name in ("EYAS_DEBUG", VARIABLE)
    }
    process = subprocess.Popen(  # noqa: S603  the command is ours: an interpreter and a module that the caller names in code
        [sys.executable, "-I", str(SHIM), str(os.getpid()), sys.executable, "-P", "-m", module],
        env=handed_on() | more,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        answer, _ = process.communicate(request)
    except KeyboardInterrupt:  # it was told by the terminal, too
        process.wait()
        raise
    return process.returncode, answer
