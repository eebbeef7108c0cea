"""Page views among item events: a page is stored as an unknown item with a key in a reserved range.

The key depends only on the page's text, so it is the same in every run. No item key may be in the range.
"""

from __future__ import annotations

from hashlib import blake2b

PAGES = range(-(2**62), -(2**62) + 2**48)
"""Keys of pages. With 100,000 pages, a collision has a chance of 1 in 56,000; colliding pages count as one page."""


def page_key(page: str) -> int:
    """Returns the key of a page; the pages 7 and "7" are the same."""
    return PAGES[int.from_bytes(blake2b(page.encode(), digest_size=6).digest(), "big")]
