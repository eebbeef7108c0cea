"""What a gateway serves from: one immutable value, swapped as a whole, so that no request sees half of a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from services.gateway.filtering import Filter
from services.gateway.loaded_version import Unit
from services.gateway.rules import Ordering
from shared.domain.route import Route
from shared.domain.slices import Slices


@dataclass(frozen=True, eq=False)
class Served:
    """One recommender: its route, every version that the route names, and what its spec says of answers."""

    route: Route
    units: Mapping[int, Unit]
    filter: Filter
    ordering: Ordering
    slices: Slices
    spec: int = 0
    """The generation of the spec that says so."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    served: Mapping[str, Served] = field(default_factory=dict)
    read_at: datetime | None = None
    """None: the routes have never been read."""

    def generations(self) -> dict[str, int]:
        return {name: served.route.generation for name, served in self.served.items()}
