"""Data tools of the command line, without a platform."""

from __future__ import annotations

import json

from services.executors.subprocess_tool import run_tool
from shared.contracts.datatools import MODULE, Answer
from shared.contracts.strict import Strict


def work_on_data(tool: str, request: Strict) -> Answer:
    """Runs one request of `eyas data` in a process of the pipelines."""
    code, output = run_tool(MODULE, json.dumps([tool, request.model_dump(mode="json", by_alias=True)]))
    try:
        return Answer.model_validate_json(output)
    except ValueError:
        return Answer(fault=f"python -m {MODULE} ended with code {code} and said nothing more", code=1)
