"""Ids that sort by time and are valid as names of files, Jobs and URLs."""

from __future__ import annotations

from datetime import datetime

REQUEST_ID = "q[0-9a-z]{16}"
"""Pattern of the gateway's request ids."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str, now: datetime, entropy: int) -> str:
    """Returns `prefix`, ten characters of milliseconds, six of `entropy`."""
    return prefix + _base32(int(now.timestamp() * 1000), 10) + _base32(entropy, 6)


def attempt_name(run: str, stage: str, attempt: int) -> str:
    """Returns the deterministic name of an attempt, so that a second start finds the first."""
    return f"{run}-{stage}-{attempt}"


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
