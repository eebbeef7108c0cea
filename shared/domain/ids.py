"""Ids that sort by time and are legal names of files, Jobs and URLs."""

from __future__ import annotations

from datetime import datetime

REQUEST_ID = "q[0-9a-z]{16}"
"""What the gateway calls an answer."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str, now: datetime, entropy: int) -> str:
    """`prefix`, ten characters of milliseconds, six of `entropy`."""
    return prefix + _base32(int(now.timestamp() * 1000), 10) + _base32(entropy, 6)


def attempt_name(run: str, stage: str, attempt: int) -> str:
    """The deterministic name of an attempt: whoever starts it twice finds it there."""
    return f"{run}-{stage}-{attempt}"


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
