"""The documents: links, requirements and tables. Generated documents: tests/platform/test_generated_documents.py."""

from __future__ import annotations

import re
from pathlib import Path

from docs.pages import documents, faults

ROOT = Path(__file__).parents[3]
NUMBER = re.compile(r"\b([TPLGNC]-\d\d)\b")


def test_features_lists_exactly_the_requirements_that_tests_name() -> None:
    rows = [line for line in (ROOT / "docs/features.md").read_text().splitlines() if re.match(r"\| [TPLGNC]-\d\d \|", line)]
    listed = {row.split("|")[1].strip() for row in rows}
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for marker in re.findall(r"requirement\(([^)]*)\)", path.read_text()):
            named |= set(NUMBER.findall(marker))
    assert listed == named


def test_every_place_that_features_names_exists() -> None:
    for line in (ROOT / "docs/features.md").read_text().splitlines():
        if re.match(r"\| [TPLGNC]-\d\d \|", line):
            for place in re.findall(r"`([a-z]+/[\w./-]*)`", line):
                assert (ROOT / place).exists(), f"{line.split('|')[1].strip()} names {place}"


def test_every_link_and_anchor_leads_somewhere_and_the_contents_to_each_document() -> None:
    assert faults(documents()) == []


def test_no_document_was_left_half_merged() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        found = re.search(r"^(?:<{7}|={7}|>{7})(?: |$)", path.read_text(), re.MULTILINE)
        assert found is None, f"{path.relative_to(ROOT)} holds both sides of a merge"


def test_every_row_of_evidence_says_claim_command_figure_and_date() -> None:
    rows = [line for line in (ROOT / "docs/evidence.md").read_text().splitlines() if line.startswith("|")]
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row.strip().strip("|"))
        assert len(cells) == 4 and all(cell.strip() for cell in cells), row[:100]
