"""What stages print: pieces of it, and the last words."""

from __future__ import annotations

from shared.contracts.stage import FULL
from shared.domain.run import Fault


def whole_characters(piece: bytes) -> bytes:
    """Leaves a character of UTF-8 that isn't complete yet for the next read."""
    for back in range(1, min(4, len(piece)) + 1):
        lead = piece[-back]
        if lead & 0b1100_0000 == 0b1000_0000:
            continue
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return piece[:-back] if length > back else piece
    return piece


def exit_reason(code: int, text: str) -> str:
    """In the last words of what it printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"exit code {code}: {lines[-1]}" if lines else f"exit code {code}, and it printed nothing"


def exit_fault(code: int) -> Fault:
    return "disk" if code == FULL else "crash"
