"""Output of stages: pieces of logs, and the reason of an exit."""

from __future__ import annotations

from shared.contracts.stage import FULL
from shared.domain.run import Fault
from shared.telemetry.logs import message_of


def whole_characters(piece: bytes) -> bytes:
    """Cuts off an incomplete UTF-8 character at the end, for the next read."""
    for back in range(1, min(4, len(piece)) + 1):
        lead = piece[-back]
        if lead & 0b1100_0000 == 0b1000_0000:
            continue
        length = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return piece[:-back] if length > back else piece
    return piece


def exit_reason(code: int, text: str) -> str:
    """Returns the exit code and the last printed message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"exit code {code}: {message_of(lines[-1])}" if lines else f"exit code {code} without output"


def exit_fault(code: int) -> Fault:
    return "disk" if code == FULL else "crash"
