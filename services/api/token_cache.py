"""Token cache: each request looks its token up; a client's token that was valid lately stays valid while the store is unavailable.

So recommendations outlive the database: a client may ask for nothing else. Other roles are not cached, and a negative lookup counts at
once.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from datetime import datetime, timedelta

from shared.domain.access import Role, Token
from shared.domain.errors import NotFound, Unavailable
from shared.ports import Clock, TokenStore
from shared.telemetry.outages import QUIET, Outages

log = logging.getLogger(__name__)

REMEMBERED = timedelta(hours=1)
"""Lifetime of an entry after its last lookup."""
PATIENCE = 2.0
"""Seconds that a cached token waits for its lookup."""
PAUSE = 1.0
"""Seconds between two tries of an unavailable store."""
_MOST = 10_000
_READERS = 4


class TokenCache:
    def __init__(self, tokens: TokenStore, clock: Clock, patience: float = PATIENCE, pause: float = PAUSE) -> None:
        self._tokens = tokens
        self._clock = clock
        self._patience = patience
        self._pause = pause
        self._cache: dict[str, tuple[Token, datetime]] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="tokens")
        self._away_until = 0.0
        self._outages = Outages(log, QUIET)

    def get(self, id: str) -> Token:
        token, at = self._cache.get(id, (None, None))
        if token is None or at is None or self._clock.now() - at > REMEMBERED:
            return self._remember(self._tokens.get(id))
        if time.monotonic() < self._away_until:
            return token
        lookup: Future[Token] = self._readers.submit(self._tokens.get, id)
        try:
            return self._remember(lookup.result(self._patience))
        except (TooLate, Unavailable) as error:
            lookup.cancel()
            self._outages.fail("", "token lookup: failed, cache in use error=%s", str(error) or "no answer", level=logging.WARNING)
            self._away_until = time.monotonic() + self._pause
            return token
        except NotFound:
            self._cache.pop(id, None)
            raise

    def _remember(self, token: Token) -> Token:
        self._away_until = 0.0
        self._outages.succeed("", "token lookup: recovered")
        if token.role is Role.CLIENT:
            self._cache.pop(token.id, None)  # the newest comes last
            self._cache[token.id] = (token, self._clock.now())
            while len(self._cache) > _MOST:
                self._cache.pop(next(iter(self._cache)), None)
        return token
