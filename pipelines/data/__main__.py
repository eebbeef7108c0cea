"""Runs data tools for the command line: reads a request from stdin, writes the answer to stdout.

Reports progress on stderr if that is a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from shared.contracts.datatools import ToolAnswer
from shared.contracts.strict import Strict
from shared.domain.errors import EyasError, Invalid

TOOLS: Mapping[str, str] = {
    "validate": "pipelines.explain.check:validate",
    "draft": "pipelines.data.draft.draft:draft",
    "synth": "pipelines.data.tools:synth",
    "download": "pipelines.data.tools:download",
    "describe": "pipelines.data.tools:describe",
    "convert": "pipelines.data.tools:convert",
    "check": "pipelines.explain.check:check",
    "explain": "pipelines.explain.command:explain",
    "encode": "pipelines.encoding.command:encode",
    "evaluate": "pipelines.trials.evaluate:evaluate",
    "train": "pipelines.trials.train:train",
    "tune": "pipelines.trials.tune:tune",
    "convert_features": "pipelines.features.convert.command:convert",
}
"""Tools by name; a request is a list of the name and the arguments. Each tool is imported on use."""


def main() -> int:
    try:
        answer = _answered(sys.stdin.read())
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(answer.model_dump_json(by_alias=True))
    return answer.code


def _answered(request: str) -> ToolAnswer:
    try:
        name, arguments = json.loads(request)
        if name not in TOOLS:
            raise Invalid(f"unknown tool '{name}'; known: {', '.join(TOOLS)}")
        return ToolAnswer(found=_tool(TOOLS[name])(arguments).model_dump(mode="json", by_alias=True))
    except EyasError as error:
        return ToolAnswer(fault=" ".join(str(error).split()), code=2 if error.status < 500 else 1)
    except ModuleNotFoundError as error:
        return ToolAnswer(fault=f"package {error.name} is not installed; run pip install 'eyas[pipelines]'", code=1)
    except OSError as error:
        return ToolAnswer(fault=f"{error.filename or 'a file'}: {error.strerror or error}", code=2)
    except Exception as error:
        if os.environ.get("EYAS_DEBUG"):
            traceback.print_exc()
        message = " ".join(str(error).split()) or "no message"
        return ToolAnswer(fault=f"unexpected {type(error).__name__}: {message} (set EYAS_DEBUG=1 for a traceback)", code=1)


def _tool(place: str) -> Callable[[Any], Strict]:
    module, _, name = place.partition(":")
    tool: Callable[[Any], Strict] = getattr(import_module(module), name)
    return tool


if __name__ == "__main__":
    sys.exit(main())
