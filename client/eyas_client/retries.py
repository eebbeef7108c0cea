"""Retries: pauses with backoff before a request is sent again."""

from __future__ import annotations

import random

import httpx

from eyas_client.operation import Outcome, Request

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
LONGEST_RETRY_AFTER = 60
"""Longest `Retry-After` in seconds that is waited for; a longer one is left to the caller."""


def pause_before_retry(request: Request[object], outcome: Outcome, attempt: int, retries: int) -> float | None:
    """Returns the pause in seconds after an attempt (the first is 0); None if the outcome is final."""
    if attempt >= retries or not request.repeatable:
        return None
    backoff: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311  spreads clients, keeps no secret
    if not isinstance(outcome, httpx.Response):
        return backoff if isinstance(outcome, httpx.TransportError) else None
    after = outcome.headers.get("retry-after", "")
    seconds = int(after) if after.isdecimal() else None
    running = outcome.status_code == 409 and request.key is not None and seconds is not None  # the first try has not ended yet
    if outcome.status_code not in (429, 503) and not running:
        return None
    if seconds is None:
        return backoff
    return None if seconds > LONGEST_RETRY_AFTER else max(backoff, seconds)
