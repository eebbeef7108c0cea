"""What a version would show a user: its own scores, or popular items and why. No fault of scoring costs the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from services.gateway.attributes import Mask
from services.gateway.filtering import Asked, Filter
from services.gateway.ranking import Rows, Scores, best
from services.gateway.units import Array, Unit
from shared.contracts.events import NO_SCORES, UNKNOWN_USER
from shared.domain.errors import EyasError, Unavailable
from shared.ports import Scorer

log = logging.getLogger(__name__)

Items = tuple[tuple[int, float | None], ...]
TOGETHER = 16_384
"""Rows of one call to the model server, at most, where several requests share it."""
_SMALL = 300
"""Items of a whole catalogue, up to which one call for several users takes less than a call for each (measured): a catalogue that comes
as it came before is known to both sides, and one that is repeated is not."""


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

    def show(self, wishes: Sequence[Wish], unit: Unit) -> list[Shown]:
        """Of one version, in the order of the wishes."""
        allowed = [wish.allowed(unit) for wish in wishes]
        found: dict[int, Shown] = {}
        for place, (wish, mask) in enumerate(zip(wishes, allowed, strict=True)):
            if not unit.knows(wish.user):
                found[place] = Shown(popular(wish, unit, mask), UNKNOWN_USER)
            elif not mask.any():
                found[place] = Shown(())
        asked = [place for place in range(len(wishes)) if place not in found]
        for place, one in zip(asked, scored(self._server, [(wishes[at], allowed[at]) for at in asked], unit), strict=True):
            found[place] = self._shown(wishes[place], unit, allowed[place], one)
        return [found[place] for place in range(len(wishes))]

    def _shown(self, wish: Wish, unit: Unit, allowed: Mask, found: Scored) -> Shown:
        if isinstance(found.items, Exception):
            self._failed(wish, unit, found.items)
            return Shown(popular(wish, unit, allowed), NO_SCORES, found.seconds)
        self._answered(wish, unit)
        return Shown(found.items, None, found.seconds)

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


@dataclass(frozen=True)
class Scored:
    """What the version made of a wish, and in how long; an exception where it gives no scores that could be ordered."""

    items: Items | Exception
    seconds: float


Allowed = tuple[Wish, Mask]
"""A wish, and by row of the unit whether its item may be shown."""


def scored(server: Scorer, wishes: Sequence[Allowed], unit: Unit) -> list[Scored]:
    """The version's own choice for each wish, in their order; as few calls as their rows allow."""
    most = TOGETHER // len(unit.items) if len(unit.items) <= _SMALL else 1
    found: list[Scored] = []
    for at in range(0, len(wishes), most):
        some = wishes[at : at + most]
        found += _alone(server, some[0], unit) if len(some) == 1 else _merged(server, some, unit)
    return found


def _alone(server: Scorer, wish: Allowed, unit: Unit) -> list[Scored]:
    """The whole catalogue is scored: its columns are the same in every call, which the server's side knows how to use."""
    return _scored(server, [wish], [unit.every], unit.feed(wish[0].user), unit)


def _merged(server: Scorer, wishes: Sequence[Allowed], unit: Unit) -> list[Scored]:
    rows = [np.flatnonzero(mask) for _, mask in wishes]
    return _scored(server, wishes, rows, unit.feed_of([wish.user for wish, _ in wishes], rows), unit)


def _scored(server: Scorer, wishes: Sequence[Allowed], rows: Sequence[Rows], feed: Mapping[str, Array], unit: Unit) -> list[Scored]:
    """One call for the rows of all of them, one after the other."""
    ends = np.cumsum([len(one) for one in rows])
    began = time.perf_counter()
    try:
        scores = np.asarray(server.score(wishes[0][0].recommender, unit.version, feed))
        if scores.shape != (ends[-1],):
            raise Unavailable(f"the server gave scores of shape {scores.shape} for {ends[-1]} items")
    except Exception as error:
        return [Scored(error, time.perf_counter() - began)] * len(wishes)
    seconds = time.perf_counter() - began
    parts = zip(wishes, rows, np.split(scores, ends[:-1]), strict=True)
    return [Scored(_best(wish.k, own[mask[own]], part[mask[own]], part, unit), seconds) for (wish, mask), own, part in parts]


def _best(k: int, rows: Rows, scores: Scores, given: Scores, unit: Unit) -> Items | Exception:
    if not np.isfinite(given).all():
        return Unavailable("the server gave scores that are no numbers")
    chosen = best(scores, unit.items[rows], k)
    return tuple(zip(unit.items[rows[chosen]].tolist(), scores[chosen].tolist(), strict=True))


def popular(wish: Wish, unit: Unit, allowed: Mask) -> Items:
    rows = unit.popular_rows[allowed[unit.popular_rows]][: wish.k]
    return tuple((item, None) for item in unit.items[rows].tolist())
