"""Tools of the command line that need no platform: work on data, and the environment of the embedded Triton."""

from __future__ import annotations

import json
from pathlib import Path

from services.executors.subprocess_tool import run_tool
from shared.contracts.datatools import MODULE, ToolAnswer
from shared.contracts.strict import Strict


def work_on_data(tool: str, request: Strict) -> ToolAnswer:
    """Runs one request of `eyas data` in a process of the pipelines."""
    code, output = run_tool(MODULE, json.dumps([tool, request.model_dump(mode="json", by_alias=True)]))
    try:
        return ToolAnswer.model_validate_json(output)
    except ValueError:
        return ToolAnswer(fault=f"python -m {MODULE} ended with exit code {code} and no answer", code=1)


def install_triton() -> Path:
    """Installs the environment of the embedded Triton and returns its folder."""
    from services.triton.wheel import install

    return install()


def triton_fault() -> str:
    """Returns why the embedded Triton cannot run on this machine; empty if it can."""
    from services.triton.wheel import fault

    return fault()
