"""How the command line has data read: by a process of the pipelines, which it asks on stdin and hears on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TypeVar

from services.cli.faults import Refused
from shared.contracts.datatools import MODULE
from shared.contracts.strict import Strict, read

S = TypeVar("S", bound=Strict)


def asked(tool: str, request: Strict, answer: type[S]) -> S:
    """What the tool answers; its refusal is the command's."""
    told = json.dumps([tool, request.model_dump(mode="json", by_alias=True)])
    done = subprocess.run([sys.executable, "-P", "-m", MODULE], input=told, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the process that reads data ended with {done.returncode}"]
        raise Refused(lines[-1], 2 if done.returncode == 2 else 1)
    return read(answer, json.loads(done.stdout), f"the answer of '{tool}'")
