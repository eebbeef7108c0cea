"""Data tools of the command line, without a platform."""

from __future__ import annotations

import json

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
