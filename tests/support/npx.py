"""Tools of npm for tests: npx fetches a pinned version once, into npm's cache."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def missing(message: str) -> None:
    """Skips the test; in CI the test fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def npx(package: str, program: str) -> list[str]:
    """Returns the command of a package such as `name@1.2.3`; `program` is its name in messages."""
    executable = shutil.which("npx")
    if executable is None:
        missing(f"{program} needs node: install the packages nodejs and npm")
    command = [str(executable), "--yes", package]
    tried = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=240)
    if tried.returncode != 0:
        missing(f"npx cannot fetch {package}, so {program} does not run: let npm reach a registry once\n{tried.stderr[-500:]}")
    return command
