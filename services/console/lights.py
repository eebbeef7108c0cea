"""Of a recommender in a word: what it earns, whether tastes drift, and whether something is under way."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from services.console import tales, verdicts
from services.console.api import Json

ENDED = tales.ENDED | verdicts.ENDED
"""States of runs and rollouts in which nothing more happens."""
DRAWN = 10
"""Users of a stretch of a version's life, from which on it is a point of a picture: one user's luck isn't a fall of the hit rate."""
TELLING = 30
"""The same for what is said in a figure."""


def drawn(points: Sequence[Json], known: Sequence[Json] | None = None) -> list[Json]:
    """The stretches with users enough; all of them where none of `known` (these themselves, if not said) has."""
    fewest = DRAWN if any(point["users"] >= DRAWN for point in (points if known is None else known)) else 0
    return [point for point in points if point["users"] >= fewest]


def earns(life: Json, version: int | None) -> Json | None:
    """The newest stretch of a version in which enough users answered to say something; without one, the stretch with most of them."""
    points = points_of(life, version)
    telling = [point for point in points if point["users"] >= TELLING]
    return telling[-1] if telling else max(points, key=lambda point: point["users"], default=None)


def points_of(life: Json, version: int | None) -> list[Json]:
    return next((found["points"] for found in life["versions"] if found["version"] == version), [])


def under_way(runs: Json, rollouts: Json) -> list[Json]:
    """What hasn't ended, each with its page."""
    return [
        {"what": what, "at": f"/{kind}/{quote(found['id'], safe='')}", "state": found["state"], "reason": found["reason"]}
        for kind, what, lists in (("rollouts", "Rollout", rollouts), ("runs", "Run", runs))
        for found in lists["items"]
        if found["state"] not in ENDED
    ]


def light(drift: Json) -> Json:
    """What the newest look came to, in a word, and why in sentences."""
    if drift["at"] is None:
        said, tone = "not known yet", "plain"
    elif any(one["stands"] for one in drift["readings"]):
        said, tone = "drifting", "bad"
    else:
        said, tone = "steady", "good"
    return {"said": said, "tone": tone, "why": "; ".join(drift["said"])}
