"""The limit on the length of the documents holds, and a lower limit names the longest documents."""

from __future__ import annotations

import pytest

from docs import words


def test_the_documents_are_within_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main() == 0, capsys.readouterr().err


def test_too_many_words_are_refused_with_the_longest_documents(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(words, "MOST", 1000)
    assert words.main() == 1
    assert "at most 1,000 are allowed: shorten some; the longest: docs/evidence.md" in capsys.readouterr().err
