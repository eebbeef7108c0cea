"""Reads data for the command line: a request on stdin, its answer on stdout. Exit codes: 0 answered, 2 refused in one line, 1 else."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from pipelines.data.validation.command import validate
from shared.contracts.strict import Strict
from shared.domain.errors import EyasError, Invalid

TOOLS: Mapping[str, Callable[[Any], Strict]] = {"validate": validate}
"""By the first word of a request, which is a list of it and of what the tool is told."""


def main() -> int:
    try:
        name, told = json.load(sys.stdin)
        if name not in TOOLS:
            raise Invalid(f"no tool is called '{name}'; there are {', '.join(TOOLS)}")
        sys.stdout.write(TOOLS[name](told).model_dump_json(by_alias=True))
    except EyasError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 2 if error.status < 500 else 1
    except Exception as error:
        traceback.print_exc()
        sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
