"""Status of a recommender: hit rate points, drift label, and active runs and rollouts."""

from __future__ import annotations

from collections.abc import Sequence

from services.console import rollout_summary, run_summary
from services.console.api import Json
from shared.domain.segments import way

ENDED = run_summary.ENDED | rollout_summary.ENDED
"""States of ended runs and rollouts."""
DRAWN = 10
"""Fewest users of a chart point, because a single user's result is not a change of the hit rate."""


def drawn(points: Sequence[Json], all_points: Sequence[Json] | None = None) -> list[Json]:
    """Points with enough users; all points if no point of `all_points` (default: `points`) has enough."""
    fewest = DRAWN if any(point["users"] >= DRAWN for point in (points if all_points is None else all_points)) else 0
    return [point for point in points if point["users"] >= fewest]


def under_way(kind: str, jobs: Sequence[Json]) -> list[Json]:
    """Runs or rollouts that have not ended, with links."""
    return [
        {"what": kind.capitalize(), "at": way(f"{kind}s", job["id"]), "state": job["state"], "reason": job["reason"]}
        for job in jobs
        if job["state"] not in ENDED
    ]


def light(drift: Json) -> Json:
    """Label and colour of the drift state, and its reasons."""
    label, tone = _LIGHTS[drift["state"]]
    return {"said": label, "tone": tone, "why": "; ".join(drift["said"])}


_LIGHTS = {
    "unknown": ("not known yet", "plain"),
    "steady": ("no drift", "good"),
    "unsure": ("unsure", "plain"),
    "drifting": ("drift", "bad"),
}
