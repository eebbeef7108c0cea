"""Runs a module of the stages in the foreground: with the environment of stages, and ended when its starter ends.

One request goes to stdin, one result comes from stdout; messages on progress go to the terminal.
"""

from __future__ import annotations

import os
import subprocess
import sys

from services.executors.local import handed_on
from services.executors.processes import SHIM
from shared.datafiles.databases import VARIABLE
from shared.domain.object_uris import PREFIXES


def run_tool(module: str, request: str) -> tuple[int, str]:
    """Returns the exit code and the output."""
    more = {
        name: value
        for name, value in os.environ.items()
        if name.startswith((*PREFIXES.values(), "EYAS_ARTIFACTS_AWS_")) or name in ("EYAS_DEBUG", VARIABLE)
    }
    process = subprocess.Popen(  # noqa: S603  the command is an interpreter and a module that is named in code
        [sys.executable, "-I", str(SHIM), str(os.getpid()), sys.executable, "-P", "-m", module],
        env=handed_on() | more,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        answer, _ = process.communicate(request)
    except KeyboardInterrupt:  # the child gets the signal from the terminal too
        process.wait()
        raise
    return process.returncode, answer
