"""Of a recommender in a word: what it earns, whether tastes drift, and whether something is under way."""

from __future__ import annotations

from collections.abc import Sequence

from services.console import rollout_summary, run_summary
from services.console.api import Json
from shared.domain.segments import way

ENDED = run_summary.ENDED | rollout_summary.ENDED
"""States of runs and rollouts in which nothing more happens."""
DRAWN = 10
"""Users of a stretch of a version's life, from which on it is a point of a picture: one user's luck isn't a fall of the hit rate."""


def drawn(points: Sequence[Json], all_points: Sequence[Json] | None = None) -> list[Json]:
    """The stretches with users enough; all of them where none of `known` (these themselves, if not said) has."""
    fewest = DRAWN if any(point["users"] >= DRAWN for point in (points if all_points is None else all_points)) else 0
    return [point for point in points if point["users"] >= fewest]


def under_way(kind: str, jobs: Sequence[Json]) -> list[Json]:
    """What hasn't ended of runs, or of rollouts, each with its page."""
    return [
        {"what": kind.capitalize(), "at": way(f"{kind}s", job["id"]), "state": job["state"], "reason": job["reason"]}
        for job in jobs
        if job["state"] not in ENDED
    ]


def light(drift: Json) -> Json:
    """What the newest look came to, in a word, and why in sentences."""
    label, tone = _LIGHTS[drift["state"]]
    return {"said": label, "tone": tone, "why": "; ".join(drift["said"])}


_LIGHTS = {
    "unknown": ("not known yet", "plain"),
    "steady": ("steady", "good"),
    "unsure": ("not sure", "plain"),
    "drifting": ("drifting", "bad"),
}
