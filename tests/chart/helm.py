"""A real Helm, wherever it is: HELM names it, `make setup-helm` fetches it, or it is on PATH."""

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
FETCHED = Path(__file__).parents[2] / "var/helm"
MISSING = {
    3: "no Helm 3: `make setup-helm` fetches it, or name it by HELM3",
    4: "no Helm: `make setup-helm` fetches it, or put helm (3.8 or newer) on PATH, or name it by HELM",
}


def helm(version: int = 4) -> str:
    """HELM may be any version that is supported; HELM3 is the older one, which is tried beside it."""
    named = os.environ.get("HELM" if version == 4 else "HELM3")
    fetched = FETCHED / f"helm-{version}"
    found = shutil.which(named) if named else str(fetched) if fetched.exists() else shutil.which("helm" if version == 4 else "helm3")
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(MISSING[version])
    pytest.skip(MISSING[version])


def run(*arguments: str, fails: bool = False, program: str | None = None) -> str:
    ended = subprocess.run([program or helm(), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode != 0) == fails, f"helm {' '.join(arguments)}: {ended.stdout}\n{ended.stderr}"
    return ended.stderr if fails else ended.stdout


def values(given: Mapping[str, Any]) -> list[str]:
    return [f"--set-json={name}={json.dumps(value)}" for name, value in given.items()]


def template(release: str = "eyas", *, profile: str | None = None, program: str | None = None, **given: Any) -> list[dict[str, Any]]:
    """What an installation would create, by a ready profile and what is said beside it."""
    of = [f"--values={CHART}/values-{profile}.yaml"] if profile else []
    return [one for one in yaml.load_all(rendered(program or helm(), release, *of, *values(given)), _LOADER) if one]


@functools.cache
def rendered(program: str, release: str, *arguments: str) -> str:
    return run("template", release, str(CHART), "--namespace", "there", *arguments, program=program)


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
