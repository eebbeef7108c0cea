"""What must hold of every route that ever was: it was asked for, it comes in its order, and nobody moves back while a weight grows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from shared.domain.route import choose
from shared.ports import RouteEntry

_PEOPLE = range(500)
"""Users whose variant is looked at under every route."""


def problems(
    past: Sequence[RouteEntry],
    weights: Sequence[float],
    rollouts: Mapping[str, int],
    served: Mapping[int, datetime],
    answered: Mapping[int, datetime],
) -> list[str]:
    """`past`: the oldest first; `weights`: of the steps; `rollouts`: the version of each; `served`, `answered`: since when every
    gateway served a generation, since when a version answered."""
    found = [f"generation {entry.route.generation} is the {number}. route" for number, entry in _misnumbered(past)]
    found += [f"{_said(entry)}: nobody asked for that" for entry in past if not _asked_for(entry, weights, rollouts)]
    for before, after in itertools.pairwise(past):
        found += _between(before, after, served)
    for entry in past:
        assert entry.route.since is not None
        found += [
            f"{_said(entry)} names version {version}, which had not answered"
            for version in sorted(entry.route.named())
            if version not in answered or answered[version] > entry.route.since
        ]
    return found


def _misnumbered(past: Sequence[RouteEntry]) -> Iterator[tuple[int, RouteEntry]]:
    return ((number, entry) for number, entry in enumerate(past, 1) if entry.route.generation != number)


def _asked_for(entry: RouteEntry, weights: Sequence[float], rollouts: Mapping[str, int]) -> bool:
    """A version alone, or a rollout's candidate at the weight of its step."""
    route = entry.route
    if route.candidate is None:
        return (route.weight, route.step, route.salt) == (0.0, -1, "")
    if rollouts.get(route.salt) != route.candidate:
        return False
    return (0.0 if route.step < 0 else weights[route.step]) == route.weight and route.shadow == (route.step < 0)


def _between(before: RouteEntry, after: RouteEntry, served: Mapping[int, datetime]) -> Iterator[str]:
    old, new = before.route, after.route
    what = f"{_said(before)}, then {_said(after)}"
    if (old.stable, old.candidate, old.weight, old.shadow) == (new.stable, new.candidate, new.weight, new.shadow):
        yield f"{what}: a change of traffic was repeated"
    if new.candidate is None and old.candidate is not None and new.stable not in old.named():
        yield f"{what}: neither of its two versions took over"
    if new.candidate is not None and (new.stable != old.stable or (old.candidate is not None and old.salt != new.salt)):
        yield f"{what}: a rollout began before the one before it had ended"
    if new.candidate is not None and old.candidate is not None and new.step != old.step + 1:
        yield f"{what}: the steps are out of their order"
    if old.salt == new.salt and old.candidate is not None:
        back = [user for user in _PEOPLE if choose(old, user)[1] == "candidate" and choose(new, user)[1] == "stable"]
        if back:
            yield f"{what}: {len(back)} of {len(_PEOPLE)} users moved back"
    grows = old.candidate is not None and (new.candidate is not None or new.stable == old.candidate)
    assert new.since is not None
    if grows and after.actor == "eyas" and (old.generation not in served or served[old.generation] > new.since):
        yield f"{what}: not every gateway served the former yet"


def _said(entry: RouteEntry) -> str:
    route = entry.route
    what = f"{route.stable}/{route.candidate} at {route.weight:.0%}, step {route.step}, {route.salt or 'alone'}"
    return f"generation {route.generation} ({what})"
