"""Each feature that no GPU has measured names the command that measures it, and `make bench-gpu` runs that command."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
NOT_MEASURED = re.compile(r"GPU: not measured(?:; | \()(.*?)\)")


def test_what_no_gpu_has_measured_names_its_command() -> None:
    features = (ROOT / "docs/features.md").read_text()
    named = NOT_MEASURED.findall(features)
    assert len(named) == features.count("GPU: not measured") > 10
    modules = {module for commands in named for module in re.findall(r"python -m (benchmarks\.\w+)", commands)}
    target = (ROOT / "Makefile").read_text().partition("\nbench-gpu:")[2].partition("\n\n")[0]
    assert modules and modules == set(re.findall(r"-m (benchmarks\.\w+)", target))
    assert all((ROOT / f"{module.replace('.', '/')}.py").exists() for module in modules)
