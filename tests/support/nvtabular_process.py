"""NVTabular in its own environment, behind a pipe."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MISSING = "NVTabular's environment is missing: make setup-nvtabular"


def python() -> Path:
    """Of its environment; whoever has none is skipped, which CI may not be."""
    found = Path(os.environ.get("EYAS_NVTABULAR_PYTHON", ROOT / ".venv-nvtabular" / "bin" / "python")).absolute()
    if not found.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EYAS_")}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


class Worker:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert "ready" in self._answer()

    def ask(self, do: str, **more: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"do": do, **{name: one for name, one in more.items() if one is not None}}, default=str) + "\n"
        )
        self._process.stdin.flush()
        answer = self._answer()
        assert "error" not in answer, answer["error"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"NVTabular's worker ended with {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found


@contextmanager
def worker(**variables: str) -> Iterator[Worker]:
    command = [str(python()), "-m", "pipelines.features.engines.nvtabular.worker"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment() | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
