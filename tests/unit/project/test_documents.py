"""The documents: links, requirements and tables. Generated documents: tests/platform/test_generated_documents.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import yaml_blocks
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


def test_every_yaml_block_is_what_its_label_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert yaml_blocks.main() == 0, capsys.readouterr().err


SPEC = (
    "apiVersion: eyas/v1\nname: movies\ndata: {interactions: {uri: a.csv}, items: {uri: b.csv, key: i}}\n"
    "schema: {user: u, item: i, time: t, label: {column: l, positive: '> 0'}}\n"
)


@pytest.mark.parametrize(
    ("label", "right", "wrong", "fault"),
    [
        ("part-of-a-spec.yaml", "split: {test: 7d}", "split: {tests: 7d}", "a.md:1: split: unknown field 'tests': did you mean 'test'?"),
        ("data/movies.yaml", SPEC, SPEC.replace("label:", "labels:"), "a.md:1: schema: unknown field 'labels'"),
        ("wrong.yaml", SPEC.replace("label:", "labels:"), SPEC, "a.md:1: the spec is accepted"),
        ("values-mine.yaml", "images: {tag: '1'}", "imagos: {}", "a.md:1: Additional properties are not allowed ('imagos' was unexpected)"),
        ("jobs.yaml", "{namespace: eyas, images: {default: a}}", "{namespace: eyas}", "a.md:1: images: field required"),
        ("databases.yaml", "shop: sqlite:////a.db", "shop: mysql://host/a", "the URL of 'shop' must begin with postgresql://"),
        ("grafana.yaml", "apiVersion: 1", "apiVersion: {", "a.md:1: not valid YAML"),
        (
            "jobs.yaml",
            "{namespace: eyas, images: {default: a}}",
            "a: 1\na: 2",
            "a.md:1: not valid YAML at line 2, column 1: 'a' is given twice",
        ),
    ],
)
def test_a_yaml_block_that_is_not_what_its_label_says_is_named(label: str, right: str, wrong: str, fault: str) -> None:
    assert list(yaml_blocks.faults(f"```yaml {label}\n{right}\n```\n", "a.md")) == []
    (found,) = yaml_blocks.faults(f"```yaml {label}\n{wrong}\n```\n", "a.md")
    assert fault in found


@pytest.mark.parametrize("label", ["", " mine.yaml"])
def test_a_yaml_block_without_a_kind_is_told_the_kinds(label: str) -> None:
    (found,) = yaml_blocks.faults(f"Text.\n\n1. So:\n\n   ```yaml{label}\n   a: 1\n   ```\n", "a.md")
    assert found.startswith("a.md:5: unknown kind of YAML block: begin it with ```yaml NAME, where NAME is one of part-of-a-spec.yaml, ")
