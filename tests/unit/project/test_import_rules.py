"""The import rules: each one is tried with a violation (tests/platform/test_import_rules.py), and the documents say its words."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.support.import_violations import VIOLATIONS

ROOT = Path(__file__).parents[3]


def contracts() -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [contract["name"] for contract in document["tool"]["importlinter"]["contracts"]]


def test_every_rule_has_a_violation_that_is_tried() -> None:
    assert {name.split(" ")[0] for name in contracts()} == {rule for rule, _, _ in VIOLATIONS}


def test_the_documentation_says_the_same_words() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    for name in contracts():
        assert name.split(" ", 1)[1] in text, f"docs/architecture.md doesn't say: {name}"
