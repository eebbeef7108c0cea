"""Each import rule of docs/architecture.md is caught when it is broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "services", "pipelines", "demo", "dashboards")

VIOLATIONS = [
    ("1.", "services/gateway/__init__.py", "import pipelines.data"),
    ("1.", "pipelines/stages/__init__.py", "import services.control"),
    ("1.", "shared/contracts/__init__.py", "import services.control"),
    ("2a.", "shared/domain/gate.py", "import shared.contracts.spec"),
    ("2a.", "shared/contracts/stage.py", "import shared.ports"),
    ("2a.", "shared/ports/clock.py", "import shared.artifacts"),
    ("2a.", "shared/artifacts/store.py", "import shared.telemetry"),
    ("2a.", "shared/artifacts/store.py", "import shared.testing"),
    ("2a.", "shared/artifacts/store.py", "import shared.pod"),
    ("2b.", "shared/domain/gate.py", "import numpy"),
    ("3a.", "services/control/loop.py", "import services.monitor"),
    ("3b.", "services/store/__init__.py", "import services.eventlog"),
    ("3b.", "services/featurestore/sql.py", "import services.store"),
    ("4a.", "services/api/__init__.py", "import services.store"),
    ("4a.", "services/cli/__init__.py", "import services.settings"),
    ("4b.", "services/gateway/__init__.py", "import services.wiring"),
    ("4c.", "services/console/api.py", "import services.api"),
    ("5a.", "services/monitor/__init__.py", "import polars"),
    ("5a.", "shared/serving/signature.py", "import tensorflow"),
    ("5a.", "services/triton/repository.py", "import xgboost"),
    ("5b.", "services/gateway/__init__.py", "import tritonclient"),
    ("5b.", "services/executors/local.py", "import kubernetes"),
    ("5b.", "services/executors/jobspec.py", "import kubernetes"),
    ("5c.", "services/gateway/__init__.py", "import sqlalchemy"),
    ("5d.", "services/gateway/__init__.py", "import faiss"),
    ("5e.", "services/gateway/__init__.py", "import nats"),
    ("5f.", "services/gateway/__init__.py", "import redis"),
    ("6.", "demo/__init__.py", "import services.api"),
    ("6.", "demo/__init__.py", "import pipelines.models"),
    ("7a.", "dashboards/asked.py", "import shared.telemetry"),
    ("7b.", "services/monitor/routes.py", "import dashboards.boards"),
    ("7b.", "shared/telemetry/metrics.py", "import grafana_foundation_sdk"),
]


def contracts() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["name"] for contract in document["tool"]["importlinter"]["contracts"]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their rules, to be broken."""
    folder = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder: Path, rule: str) -> subprocess.CompletedProcess[str]:
    """Checks the contracts whose names begin with `rule`."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    chosen = [contract for contract in document["contracts"] if contract["name"].startswith(rule)]
    lines = ["[importlinter]", "root_packages =", *(f"    {name}" for name in PACKAGES), "include_external_packages = True"]
    for number, contract in enumerate(chosen):
        lines.append(f"[importlinter:contract:{number}]")
        for key, value in contract.items():
            lines += [f"{key} =", *(f"    {one}" for one in value)] if isinstance(value, list) else [f"{key} = {value}"]
    (folder / "rules.ini").write_text("\n".join(lines) + "\n")
    code = "from importlinter.cli import lint_imports_command as command; command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--config", "rules.ini", "--no-cache"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_house_keeps_its_rules(copy: Path) -> None:
    result = lint(copy, "")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(contracts())} kept, 0 broken" in result.stdout


@pytest.mark.parametrize(("rule", "file", "line"), VIOLATIONS)
def test_a_broken_rule_is_caught(copy: Path, rule: str, file: str, line: str) -> None:
    path = copy / file
    before = path.read_text()
    try:
        path.write_text(f"{before}\n{line}\n")
        result = lint(copy, rule)
    finally:
        path.write_text(before)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_every_rule_has_a_violation_that_is_tried() -> None:
    assert {name.split(" ")[0] for name in contracts()} == {rule for rule, _, _ in VIOLATIONS}


def test_the_documentation_says_the_same_words() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for name in contracts():
        assert name.split(" ", 1)[1] in text, f"docs/architecture.md doesn't say: {name}"
