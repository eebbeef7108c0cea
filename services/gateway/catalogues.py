"""Keeps the gateway's copies of the catalogues equal to the store.

A copy reads change by change and is published only when no change is left: a request sees a change completely or not at all.
While the store is away, the last copies stay; a metric shows their age.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from services.gateway.attributes import AttributeBuilder, Attributes
from services.gateway.new_items import EMPTY, CatalogueView
from shared.ports import Catalogue, CatalogueHead, Clock
from shared.telemetry import metrics
from shared.telemetry.outages import Outages

log = logging.getLogger(__name__)

EVERY = timedelta(milliseconds=200)
PAGE = 2_000
PATIENCE = 0.5
"""Maximum seconds that one pass reads: the same thread reads the routes."""


class _Copy:
    def __init__(self, cleared: int) -> None:
        self.ledger = AttributeBuilder()
        self.cleared = cleared
        self.revision = cleared
        """Last revision read."""


class Catalogues:
    def __init__(
        self,
        store: Catalogue,
        view: Callable[[str, Attributes, CatalogueView], CatalogueView],
        clock: Clock,
        page: int = PAGE,
        patience: float = PATIENCE,
    ) -> None:
        """`view` makes the view of a recommender's state from the former view."""
        self._store = store
        self._view = view
        self._clock = clock
        self._page = page
        self._patience = patience
        self._copies: dict[str, _Copy] = {}
        self._shown: dict[str, CatalogueView] = {}
        self._stale: set[str] = set()
        self._looked_at: datetime | None = None
        self._outages = Outages(log)
        self.read_at: datetime | None = None
        """Last time when all copies were current; None: never."""
        metrics.CATALOGUE_AGE.set_function(self._age)  # evaluated at each scrape, even if the store hangs

    def of(self, recommender: str) -> CatalogueView:
        return self._shown.get(recommender, EMPTY)

    def renew(self) -> None:
        """Makes all views again, for other versions."""
        self._renew(self._shown)

    def _renew(self, recommenders: Iterable[str]) -> None:
        for name in list(recommenders):
            self._show(name, self.of(name).attributes)

    def _age(self) -> float:
        return math.inf if self.read_at is None else max(0.0, (self._clock.now() - self.read_at).total_seconds())

    def refresh(self) -> None:
        """Makes one pass, on one thread. Never raises: a fault is logged once, and the last copies stay."""
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at < EVERY:
            return
        self._looked_at = now
        try:
            if self._read(time.monotonic() + self._patience):
                self.read_at = now
            else:
                self._looked_at = None  # more to read
            self._outages.succeed("", "catalogues: recovered")
        except Exception as error:
            self._outages.fail("", "catalogues: reading failed, the last copies stay in use error=%s", error, error=error)

    def due(self) -> float | None:
        """Seconds until a pass has work although nothing has changed; None if never."""
        if self._outages.open or self._looked_at is None:
            return 0.0
        return EVERY.total_seconds() if self._stale else None

    def _read(self, until: float) -> bool:
        """Returns whether nothing is left to read."""
        heads = self._store.heads()
        self._renew(self._stale)
        complete = [self._follow(name, head, until) for name, head in heads.items()]
        return all(complete)

    def _follow(self, name: str, head: CatalogueHead, until: float) -> bool:
        copy = self._copies.get(name)
        if copy is None or copy.revision < head.cleared:
            copy = self._copies[name] = _Copy(head.cleared)
        elif copy.revision >= head.revision:
            return True
        while True:
            changes = self._store.changes(name, copy.revision, self._page)
            if changes:
                copy.ledger.take(changes)
                copy.revision = changes[-1].revision
            if len(changes) < self._page:
                self._show(name, copy.ledger.state)
                return True
            if time.monotonic() > until:
                return False

    def _show(self, name: str, state: Attributes) -> None:
        self._shown[name] = shown = self._view(name, state, self.of(name))
        (self._stale.add if shown.stale else self._stale.discard)(name)
        metrics.CATALOGUE_ITEMS.labels(name).set(len(state))
        metrics.CATALOGUE_BYTES.labels(name).set(state.size)
