"""The documents as pages: what leads nowhere is a fault, what stands nowhere in the contents too, and a page fetches nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, documents, faults, read, write

FILES = {
    "README.md": "# Read me\n\nSee [the contents](docs/index.md) and [how](docs/how-to/one.md#the-second-step).\n",
    "docs/index.md": "# Contents\n\n## Tutorial\n\n- [One](how-to/one.md)\n- [Read me](../README.md)\n- [decisions](adr/)\n",
    "docs/how-to/one.md": "# One\n\n## The *second* `step`\n\n## The second step\n\n"
    "[a](#the-second-step-1), [b](../../README.md), ![p](p.svg), [x](https://a.example/)\n",
    "docs/how-to/p.svg": "<svg/>",
    "docs/adr/0001-a.md": "# 1. A\n\n```yaml a.yaml\nkey: 1 # <b>\n```\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_pages_of_the_documents_are_written_and_name_no_other_host(tmp_path: Path) -> None:
    found = documents()
    write(tmp_path, found)
    pages = [*tmp_path.rglob("*.html")]
    assert len(pages) == len(found) + 1  # the folder of the decisions
    for page in pages:
        text = page.read_text()
        assert not re.search(r"<script|<iframe|@import|url\(|(src|srcset)=\"[a-z]+:|<link[^>]*href=\"[a-z]+:", text), page
        for target in re.findall(r' (?:href|src)="(?![a-z]+:)([^"#]+)', text):
            assert (page.parent / target).exists(), f"{page.relative_to(tmp_path)} leads to {target}"
    assert not re.search(r"@import|url\(", (tmp_path / "docs.css").read_text())


def test_make_docs_ends_with_where_they_are() -> None:
    done = subprocess.run([sys.executable, "-m", "docs.pages"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (ROOT / "var/docs/index.html").exists()
    assert done.stdout.endswith("pages: var/docs/index.html\n")


def test_documents_in_which_all_is_well_have_no_faults(root: Path, tmp_path: Path) -> None:
    found = documents(root)
    assert faults(found, root) == []
    write(tmp_path / "site", found, root)
    page = (tmp_path / "site/how-to/one.html").read_text()
    assert 'id="the-second-step-1"' in page
    assert 'href="../readme.html"' in page
    assert 'href="https://a.example/"' in page
    assert (tmp_path / "site/how-to/p.svg").exists()
    assert 'href="../adr/0001-a.html"' in (tmp_path / "site/adr/index.html").read_text()
    contents = (tmp_path / "site/adr/0001-a.html").read_text()
    assert (
        contents.index("<p>Tutorial</p>")
        < contents.index('href="../how-to/one.html">One<')
        < contents.index('href="../readme.html">Read me<')
    )
    assert 'title="a.yaml"' in contents and "<b>" not in contents


@pytest.mark.parametrize(
    ("name", "right", "wrong", "fault"),
    [
        ("README.md", "docs/index.md", "docs/indexes.md", "README.md:3: docs/indexes.md leads nowhere"),
        (
            "README.md",
            "#the-second-step",
            "#the-third-step",
            "README.md:3: docs/how-to/one.md#the-third-step: docs/how-to/one.md has no heading",
        ),
        ("docs/how-to/one.md", "-step-1", "-step-2", "docs/how-to/one.md:7: #the-second-step-2: docs/how-to/one.md has no heading"),
        ("docs/how-to/one.md", "../../README", "../../../README", "docs/how-to/one.md:7: ../../../README.md leads nowhere"),
        ("docs/how-to/one.md", "(p.svg)", "(q.svg)", "docs/how-to/one.md:7: q.svg leads nowhere"),
        ("docs/how-to/one.md", "(p.svg)", "(p.svg#a)", "docs/how-to/one.md:7: p.svg#a: docs/how-to/p.svg has no heading"),
        ("docs/index.md", "- [One](how-to/one.md)\n", "", "docs/index.md doesn't lead to docs/how-to/one.md"),
        ("docs/index.md", "adr/", "/docs/adr/", "docs/index.md:7: /docs/adr/ leads nowhere"),
    ],
)
def test_what_leads_nowhere_is_named_by_its_line(name: str, right: str, wrong: str, fault: str, root: Path) -> None:
    text = (root / name).read_text()
    assert right in text
    (root / name).write_text(text.replace(right, wrong))
    (said,) = faults(documents(root), root)
    assert said.startswith(fault)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("Many recommenders", "many-recommenders"),
        ("Steps of training (2026-11-22)", "steps-of-training-2026-11-22"),
        ("From torch's DataLoader", "from-torchs-dataloader"),
        ("`eyas up` -- and *more*", "eyas-up----and-more"),
        ("EyasErrorBudgetBurns", "eyaserrorbudgetburns"),
        ("A [link](x.md) in_it", "a-link-in_it"),
        ("Größe: 5 %", "größe-5-"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    (found,) = read("a.md", f"## {heading}\n").headings
    assert found.anchor == anchor


def test_code_is_no_heading_and_no_link() -> None:
    found = read("a.md", "# A\n\n```text\n# B\n[c](d.md)\n```\n\n`[e](f.md)`\n")
    assert [one.text for one in found.headings] == ["A"]
    assert found.links == ()
