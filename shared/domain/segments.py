"""URL paths from names and ids; external text always stays one segment."""

from __future__ import annotations

from urllib.parse import quote


def way(*parts: object) -> str:
    """Returns a path from the root: `way("runs", id)`."""
    return "".join(f"/{segment(str(part))}" for part in parts)


def segment(text: str) -> str:
    """Quotes a segment, also one of dots only, which clients and servers would resolve as a folder."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) == {"."} else quoted
