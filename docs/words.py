"""Limits the length of the documents: at most 55,000 words, reference left out.

python -m docs.words
"""

from __future__ import annotations

import sys

from docs.generate import DOCS, GENERATED

MOST = 55_000
REFERENCE = {DOCS / name for name in (*GENERATED, "api.md", "features.md")}
"""Tables that are generated, or that a test compares with the code."""


def main() -> int:
    paths = {*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")} - REFERENCE
    counts = {path.relative_to(DOCS.parent): len(path.read_text().split()) for path in paths}
    total = sum(counts.values())
    if total <= MOST:
        return 0
    longest = ", ".join(f"{path} {count:,}" for path, count in sorted(counts.items(), key=lambda pair: -pair[1])[:5])
    print(f"the documents have {total:,} words; at most {MOST:,} are allowed: shorten some; the longest: {longest}", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
