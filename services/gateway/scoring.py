"""What a version would show a user: its own scores, or popular items and why. No fault of scoring costs the answer."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import numpy as np

from services.gateway.attributes import Mask
from services.gateway.filtering import Asked, Filter
from services.gateway.ranking import best
from services.gateway.units import Unit
from shared.contracts.events import NO_SCORES, UNKNOWN_USER
from shared.domain.errors import EyasError, Unavailable
from shared.ports import Scorer

log = logging.getLogger(__name__)

Items = tuple[tuple[int, float | None], ...]


@dataclass(frozen=True)
class Wish:
    """What is asked of a version, whichever it is."""

    recommender: str
    user: int
    k: int
    filter: Filter
    asked: Asked

    def allowed(self, unit: Unit) -> Mask:
        """By row of the unit, whether its item may be shown."""
        return self.filter.keep(unit, unit.every, self.asked)


@dataclass(frozen=True)
class Shown:
    items: Items
    """Best first; a popular item has no score."""
    fallback: str | None = None
    seconds: float | None = None
    """That scoring took; None where the version wasn't asked."""

    @property
    def score(self) -> float | None:
        """The mean of the items shown."""
        scores = [score for _, score in self.items if score is not None]
        return sum(scores) / len(scores) if scores else None


class Scoring:
    def __init__(self, server: Scorer) -> None:
        self._server = server
        self._unscored: set[tuple[str, int]] = set()

    def show(self, wish: Wish, unit: Unit) -> Shown:
        allowed = wish.allowed(unit)
        if not unit.knows(wish.user):
            return Shown(popular(wish, unit, allowed), UNKNOWN_USER)
        if not allowed.any():
            return Shown(())
        began = time.perf_counter()
        try:
            items = scored(self._server, wish, unit, allowed)
        except Exception as error:
            seconds = time.perf_counter() - began
            self._failed(wish, unit, error)
            return Shown(popular(wish, unit, allowed), NO_SCORES, seconds)
        self._answered(wish, unit)
        return Shown(items, None, time.perf_counter() - began)

    def _failed(self, wish: Wish, unit: Unit, error: Exception) -> None:
        """Said once, counted each time."""
        key = (wish.recommender, unit.version)
        if key not in self._unscored:
            self._unscored.add(key)
            ours = isinstance(error, EyasError)
            said = str(error) if ours else f"{type(error).__name__}: {error}"
            log.warning("%s version %d: %s; popular items go out instead", *key, said, exc_info=None if ours else error)

    def _answered(self, wish: Wish, unit: Unit) -> None:
        key = (wish.recommender, unit.version)
        if key in self._unscored:
            self._unscored.discard(key)
            log.info("%s version %d: scores again", *key)


def scored(server: Scorer, wish: Wish, unit: Unit, allowed: Mask) -> Items:
    """The version's own choice; Unavailable where it gives no scores that could be ordered."""
    scores = np.asarray(server.score(wish.recommender, unit.version, unit.feed(wish.user)))
    if scores.shape != unit.items.shape:
        raise Unavailable(f"the server gave scores of shape {scores.shape} for {len(unit.items)} items")
    if not np.isfinite(scores).all():
        raise Unavailable("the server gave scores that are no numbers")
    rows = np.flatnonzero(allowed)
    chosen = rows[best(scores[rows], unit.items[rows], wish.k)]
    return tuple(zip(unit.items[chosen].tolist(), scores[chosen].tolist(), strict=True))


def popular(wish: Wish, unit: Unit, allowed: Mask) -> Items:
    rows = unit.popular_rows[allowed[unit.popular_rows]][: wish.k]
    return tuple((item, None) for item in unit.items[rows].tolist())
