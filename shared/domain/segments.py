"""URL paths from names and ids; external text always stays one segment."""

from __future__ import annotations

import re
from urllib.parse import quote

_PROTECTED = re.compile(r"https://[^/@\s?#]+(/[^\s]*)?|http://(127\.0\.0\.1|localhost)(:[0-9]+)?(/[^\s]*)?")


def way(*parts: object) -> str:
    """Returns a path from the root: `way("runs", id)`."""
    return "".join(f"/{segment(str(part))}" for part in parts)


def segment(text: str) -> str:
    """Quotes a segment, also one of dots only, which clients and servers would resolve as a folder."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) == {"."} else quoted


def is_protected(url: str) -> bool:
    """Returns whether others cannot read along: https without a password in the address, or http of this machine."""
    return _PROTECTED.fullmatch(url) is not None
