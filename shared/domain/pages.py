"""Views of pages among those of items: a page is an item that isn't there, under a key of its own.

The key follows from the page's text alone, so that it means the same in every run, and lies where no item's key may be.
"""

from __future__ import annotations

from hashlib import blake2b

PAGES = range(-(2**62), -(2**62) + 2**48)
"""The keys of pages. Of 100,000 pages two share one by chance once in 56,000 times; then they are one page."""


def page_key(page: str) -> int:
    """The page 7 is the page "7"."""
    return PAGES[int.from_bytes(blake2b(page.encode(), digest_size=6).digest(), "big")]
