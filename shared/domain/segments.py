"""Addresses out of names and ids: what comes from outside stays one segment."""

from __future__ import annotations

from urllib.parse import quote


def way(*parts: object) -> str:
    """From the root on: `way("runs", id)`."""
    return "".join(f"/{segment(str(part))}" for part in parts)


def segment(text: str) -> str:
    """Dots alone are quoted, too: clients and servers take them for the folder itself, or the one above."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if set(text) == {"."} else quoted
