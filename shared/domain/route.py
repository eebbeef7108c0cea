"""Assignment of users to versions: sticky, and a growing weight moves no user back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Variant = Literal["stable", "candidate"]


@dataclass(frozen=True)
class Route:
    """Route of one recommender. `generation` rises with each change; gateways report the generation that they serve."""

    stable: int
    candidate: int | None = None
    weight: float = 0.0
    salt: str = ""
    step: int = -1
    shadow: bool = False
    """The candidate also gets the requests, and its answers are thrown away; the weight is zero."""
    generation: int = 0
    since: datetime | None = None

    @property
    def judged(self) -> bool:
        """Whether users are split between two versions."""
        return self.candidate is not None and not self.shadow

    def named(self) -> frozenset[int]:
        return frozenset(v for v in (self.stable, self.candidate) if v is not None)


def choose(route: Route, user: int) -> tuple[int, Variant]:
    """Returns the version for a user by a hash of user and rollout, so a growing weight only adds users to the candidate."""
    if route.candidate is None or position(route.salt, user) >= route.weight:
        return route.stable, "stable"
    return route.candidate, "candidate"


def position(salt: str, user: int) -> float:
    """Returns a user's position in [0, 1) for a rollout's salt."""
    digest = hashlib.blake2b(f"{salt}:{user}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
