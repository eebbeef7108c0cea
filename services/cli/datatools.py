"""How the command line has data worked on: by a process of the pipelines, which the local executor starts and which is asked on stdin."""

from __future__ import annotations

from typing import TypeVar

from services.cli.faults import Refused
from shared.contracts.strict import Strict, read

S = TypeVar("S", bound=Strict)


def asked(tool: str, request: Strict, answer: type[S]) -> S:
    """What the tool answers; its refusal is the command's."""
    from services.wiring.tools import work_on_data

    given = work_on_data(tool, request)
    if given.fault is not None:
        raise Refused(given.fault, given.code)
    return read(answer, given.found, f"the answer of '{tool}'")
