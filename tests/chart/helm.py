"""A real Helm, wherever it is: HELM, PATH, or the `make chart` target's own."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

CHART = Path(__file__).parents[2] / "helm/eyas"
MISSING = "no Helm: put helm (3.8 or newer) on PATH, or name it by HELM"


def helm() -> str:
    found = shutil.which(os.environ.get("HELM") or "helm")
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


def run(*arguments: str, fails: bool = False) -> str:
    ended = subprocess.run([helm(), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode != 0) == fails, f"helm {' '.join(arguments)}: {ended.stdout}\n{ended.stderr}"
    return ended.stderr if fails else ended.stdout


def values(given: Mapping[str, Any]) -> list[str]:
    return [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]


def template(release: str = "eyas", *, profile: str | None = None, **given: Any) -> list[dict[str, Any]]:
    """What an installation would create, by a ready profile and what is said beside it."""
    of = [f"--values={CHART}/values-{profile}.yaml"] if profile else []
    return [one for one in yaml.safe_load_all(rendered(release, *of, *values(given))) if one]


@functools.cache
def rendered(release: str, *arguments: str) -> str:
    return run("template", release, str(CHART), "--namespace", "there", *arguments)
