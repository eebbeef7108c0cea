"""docs/openapi.json by Spectral, as `make lint-api` asks it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.npx import npx

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def spectral() -> list[str]:
    """The version that the Makefile names: one place says it."""
    named = re.search(r"@stoplight/spectral-cli@[\d.]+", (ROOT / "Makefile").read_text())
    assert named is not None
    return [*npx(named[0], "Spectral"), "lint", "--fail-severity", "hint", "--ruleset", str(ROOT / "docs/spectral.yaml")]


def _lint(command: list[str], document: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, str(document)], cwd=document.parent, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.requirement("C-01")
def test_spectral_finds_nothing(spectral: list[str]) -> None:
    result = _lint(spectral, ROOT / "docs/openapi.json")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.requirement("C-01")
def test_spectral_would_find_what_is_wrong(spectral: list[str], tmp_path: Path) -> None:
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    del document["info"]["contact"]
    document["paths"]["/v1/runs"]["get"]["tags"] = ["nobody"]
    document["paths"]["/v1/tokens"]["post"]["requestBody"]["content"]["application/json"]["example"]["role"] = "king"
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    result = _lint(spectral, tmp_path / "openapi.json")
    assert result.returncode != 0
    for rule in ("info-contact", "operation-tag-defined", "oas3-valid-media-example"):
        assert rule in result.stdout
