"""The documents as pages: broken links and documents without a link to them are faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import documents, faults, read, write

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


BROKEN = (
    ("README.md", "docs/index.md", "docs/indexes.md", "README.md:3: docs/indexes.md: file not found"),
    (
        "README.md",
        "#the-second-step",
        "#the-third-step",
        "README.md:3: docs/how-to/one.md#the-third-step: docs/how-to/one.md has no heading",
    ),
    ("docs/how-to/one.md", "-step-1", "-step-2", "docs/how-to/one.md:7: #the-second-step-2: docs/how-to/one.md has no heading"),
    ("docs/how-to/one.md", "../../README", "../../../README", "docs/how-to/one.md:7: ../../../README.md: file not found"),
    ("docs/how-to/one.md", "(p.svg)", "(q.svg)", "docs/how-to/one.md:7: q.svg: file not found"),
    ("docs/how-to/one.md", "(p.svg)", "(p.svg#a)", "docs/how-to/one.md:7: p.svg#a: docs/how-to/p.svg has no heading"),
    ("docs/index.md", "- [One](how-to/one.md)\n", "", "docs/index.md has no link to docs/how-to/one.md"),
    ("docs/index.md", "adr/", "/docs/adr/", "docs/index.md:7: /docs/adr/: file not found"),
)


def test_a_broken_link_is_named_by_its_line(root: Path, subtests: pytest.Subtests) -> None:
    for name, right, wrong, fault in BROKEN:
        with subtests.test(name=name, wrong=wrong):
            text = FILES[name]
            assert right in text
            (root / name).write_text(text.replace(right, wrong))
            (said,) = faults(documents(root), root)
            (root / name).write_text(text)
            assert said.startswith(fault)


ANCHORS = (
    ("Many recommenders", "many-recommenders"),
    ("Steps of training (2026-11-22)", "steps-of-training-2026-11-22"),
    ("From torch's DataLoader", "from-torchs-dataloader"),
    ("`eyas up` -- and *more*", "eyas-up----and-more"),
    ("EyasErrorBudgetBurns", "eyaserrorbudgetburns"),
    ("A [link](x.md) in_it", "a-link-in_it"),
    ("Größe: 5 %", "größe-5-"),
)


def test_anchors_are_those_of_github(subtests: pytest.Subtests) -> None:
    for heading, anchor in ANCHORS:
        with subtests.test(heading=heading):
            (found,) = read("a.md", f"## {heading}\n").headings
            assert found.anchor == anchor


def test_code_is_no_heading_and_no_link() -> None:
    found = read("a.md", "# A\n\n```text\n# B\n[c](d.md)\n```\n\n`[e](f.md)`\n")
    assert [one.text for one in found.headings] == ["A"]
    assert found.links == ()
