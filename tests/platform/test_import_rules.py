"""Import-linter finds a violation of each import rule of docs/architecture.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.import_violations import VIOLATIONS

ROOT = Path(__file__).parents[2]
PACKAGES = ("eyas", "shared", "services", "pipelines", "demo", "dashboards", "eyas_client")


def contracts() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["name"] for contract in document["tool"]["importlinter"]["contracts"]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and their rules, to be broken."""
    folder = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / ("client/eyas_client" if package == "eyas_client" else package),
            folder / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
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


def test_a_broken_rule_is_caught(copy: Path, subtests: pytest.Subtests) -> None:
    for rule, file, line in VIOLATIONS:
        with subtests.test(rule=rule, file=file, line=line):
            path = copy / file
            before = path.read_text()
            try:
                path.write_text(f"{before}\n{line}\n")
                result = lint(copy, rule)
            finally:
                path.write_text(before)
            assert result.returncode == 1, result.stdout + result.stderr
            assert "BROKEN" in result.stdout
