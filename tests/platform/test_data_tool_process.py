"""`python -m pipelines.data`: one request on stdin, one answer on stdout, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl

from shared.contracts.datatools import ToolAnswer


def test_one_request_one_answer(tmp_path: Path) -> None:
    pl.DataFrame({"userId": [3, 1, 2, 1, None]}).write_parquet(tmp_path / "a.parquet")

    def told(request: str) -> tuple[int, ToolAnswer, str]:
        done = subprocess.run([sys.executable, "-m", "pipelines.data"], input=request, capture_output=True, text=True, check=False)
        return done.returncode, ToolAnswer.model_validate_json(done.stdout), done.stderr

    code, answer, said = told(json.dumps(["describe", {"uri": str(tmp_path / "a.parquet")}]))
    assert (code, answer.found["rows"], said) == (0, 5, "")
    code, answer, said = told(json.dumps(["describe", {"uri": str(tmp_path / "b.parquet")}]))
    assert (code, answer.fault, said) == (2, f"{tmp_path}/b.parquet: file not found", "")
    assert str(told(json.dumps(["descibe", {}]))[1].fault).startswith("unknown tool 'descibe'; known: validate, draft, synth, ")
    assert "unknown field 'url': did you mean 'uri'?" in str(told(json.dumps(["describe", {"url": "x"}]))[1].fault)
    code, answer, said = told("[1]")
    assert (code, said) == (1, "")
    assert str(answer.fault).startswith("unexpected ValueError: ")
