"""Prose rules: the length of the documents, the length of a sentence, and phrases that readers must solve first.

python -m docs.prose    # prints each violation, and exits with 1 if there is one
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from docs.generate import DOCS, GENERATED

ROOT = DOCS.parent
MOST_WORDS = 55_000
LONGEST = 45
"""Words of a sentence in a document."""
REFERENCE = {Path("docs") / name for name in (*GENERATED, "api.md", "features.md")}
"""Tables that are generated, or that a test compares with the code: they do not count as words of documents."""
PHRASES = {
    r"\banew\b": "again",
    r"\bfor ever\b": "forever, or never ends",
    r"\bheard?\b|\bhears\b": "receives, reads",
    r"\bso many\b": "the number of",
    r"\bin the place of\b": "instead of",
    r"\b(?:and|or) the like\b": "name them, or 'such as'",
    r"(?<![Tt]here )\b(?:is|are|was) no (?!longer\b|more than\b|less than\b|such\b)[a-z]+": "is not a; there is no",
    r"\bstood\b|\bstands (?:in|for)\b": "is in, means",
    r"\blaid\b|\blies in\b": "put, is in",
    r"\bas (?:it is|they are)\b(?! \w+ed)": "unchanged",
    r"\b(?:is|are) nothing that\b": "cannot",
    r"\bwhither\b|\bwhence\b|\bthereof\b|\bhenceforth\b": "where, from where, of it",
}


def violations(root: Path = ROOT, most_words: int = MOST_WORDS) -> Iterator[str]:
    documents = {*root.glob("*.md"), *(root / "client").glob("*.md"), *(root / "docs").rglob("*.md")}
    counts = {path: len(path.read_text().split()) for path in documents if path.relative_to(root) not in REFERENCE}
    if sum(counts.values()) > most_words:
        longest = ", ".join(f"{path.relative_to(root)} {count:,}" for path, count in sorted(counts.items(), key=lambda pair: -pair[1])[:5])
        yield f"the documents have {sum(counts.values()):,} words, the limit is {most_words:,}: shorten some; the longest: {longest}"
    for path in sorted(documents):
        for line, text in paragraphs(path.read_text()):
            yield from (f"{path.relative_to(root)}:{line}: {fault}" for fault in faults(text))
            if path in counts:
                yield from (f"{path.relative_to(root)}:{line}: {fault}" for fault in long_sentences(text))
    for package in ("shared", "services", "pipelines", "demo", "client"):
        for path in sorted((root / package).rglob("*.py")):
            yield from (f"{path.relative_to(root)}:{line}: {fault}" for line, text in texts(path) for fault in faults(text))


def paragraphs(document: str) -> Iterator[tuple[int, str]]:
    """Yields the prose of a document by line: paragraphs, list items, headings and table cells. Code and link targets are left out."""
    for token in MarkdownIt().enable("table").parse(document):
        if token.type == "inline" and token.map is not None:
            prose = ("X" if child.type == "code_inline" else child.content or " " for child in token.children or ())
            yield token.map[0] + 1, "".join(prose)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the strings and comments of a module."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], re.sub(r"`[^`]*`|\{[^{}]*\}", "X", token.string)


def faults(text: str) -> Iterator[str]:
    for pattern, better in PHRASES.items():
        for match in re.finditer(pattern, text):
            yield f"'{match[0]}': write {better}"


def long_sentences(text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.:;!?])\s", text):
        if (count := len(sentence.split())) > LONGEST:
            yield f"a sentence of {count} words, the limit is {LONGEST}: {sentence[:60]}..."


if __name__ == "__main__":
    found_violations = list(violations())
    sys.stdout.write("".join(f"{violation}\n" for violation in found_violations))
    sys.exit(bool(found_violations))
