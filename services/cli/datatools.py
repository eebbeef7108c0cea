"""Runs `python -m pipelines.data` in a child process, for commands that read data files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from services.cli.exit_codes import Exit
from services.cli.faults import ReportedError

if TYPE_CHECKING:
    from shared.contracts.strict import Strict

S = TypeVar("S", bound="Strict")


def placed(path: Path | None) -> str | None:
    """Makes a path absolute, because the tool runs in another directory."""
    return None if path is None else str(path.absolute())


def run_tool(tool: str, request: Strict, answer: type[S]) -> S:
    """Returns the tool's answer; raises `ReportedError` with the tool's error."""
    from services.wiring.tools import work_on_data
    from shared.contracts.strict import read

    reply = work_on_data(tool, request)
    if reply.fault is not None:
        raise ReportedError(reply.fault, Exit.WRONG if reply.code == Exit.WRONG else Exit.AWAY)
    return read(answer, reply.found, f"the answer of '{tool}'")
