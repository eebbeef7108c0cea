"""Generated documents are up to date, and the pages of all documents fetch nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.pages import ROOT, documents, write


def test_the_generated_documents_are_up_to_date() -> None:
    result = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


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
