"""The prose rules (docs/prose.py): each violation is reported with its place, and the project has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.prose import LONGEST, ROOT, violations


def plant(root: Path, document: str = "A plain sentence.\n", code: str = '"""Plain."""\n', most_words: int = 100) -> list[str]:
    for name, text in {"README.md": document, "docs/guide.md": "Some words.\n", "shared/part.py": code}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return list(violations(root, most_words))


def test_the_project_keeps_the_rules() -> None:
    assert list(violations(ROOT)) == []


def test_plain_texts_have_no_violation(tmp_path: Path) -> None:
    document = "There is no limit.\n\n```\nfor ever\n```\n\nThe name `anew` and a [link](heard.md) are not prose.\n"
    assert plant(tmp_path, document, 'LOG = f"{anew}: done"  # `stood`\n') == []


def test_too_many_words_are_reported_with_the_longest_documents(tmp_path: Path) -> None:
    (fault,) = plant(tmp_path, "word " * 9, most_words=10)
    assert fault == "the documents have 11 words, the limit is 10: shorten some; the longest: README.md 9, docs/guide.md 2"


def test_words_of_generated_documents_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/cli.md").write_text("word " * 500)
    assert plant(tmp_path) == []


@pytest.mark.parametrize("phrase", ["anew", "for ever", "heard", "so many", "in the place of", "and the like", "is no number", "stood"])
def test_a_phrase_is_reported_in_documents_strings_and_comments(tmp_path: Path, phrase: str) -> None:
    faults = plant(tmp_path, f"First line.\n\n- It {phrase} x.\n", f'"""It {phrase} x."""\n\nNAME = 1  # it {phrase} x\n')
    assert [fault.split(": ")[0] for fault in faults] == ["README.md:3", "shared/part.py:1", "shared/part.py:3"]
    assert all(fault.split(": ")[1] == f"'{phrase}'" for fault in faults)


def test_a_long_sentence_is_reported_across_the_lines_of_its_paragraph(tmp_path: Path) -> None:
    words = ["word"] * (LONGEST + 1)
    assert plant(tmp_path, f"Short one.\n\n{' '.join(words[:20])}\n{' '.join(words[20:-1])}.\n") == []
    (fault,) = plant(tmp_path, f"Short one.\n\n{' '.join(words[:20])}\n{' '.join(words[20:])}.\n")
    assert fault.startswith(f"README.md:3: a sentence of {LONGEST + 1} words, the limit is {LONGEST}: word word")
