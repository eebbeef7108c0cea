"""The immutable state that a gateway serves from, swapped as a whole: no request sees half of a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from services.gateway.filtering import Filter
from services.gateway.loaded_version import LoadedVersion
from services.gateway.rules import Ordering
from shared.domain.entity_ids import UNFIXED, IdKinds
from shared.domain.route import Route
from shared.domain.slices import Slices


@dataclass(frozen=True, eq=False)
class ServedRecommender:
    """A recommender's route, the versions that it names, and the compiled serving part of the spec."""

    route: Route
    units: Mapping[int, LoadedVersion]
    filter: Filter
    ordering: Ordering
    slices: Slices
    spec: int = 0
    """Generation of the spec."""
    ids: IdKinds = UNFIXED


@dataclass(frozen=True, eq=False)
class Snapshot:
    served: Mapping[str, ServedRecommender] = field(default_factory=dict)
    read_at: datetime | None = None
    """None: routes were never read."""

    def generations(self) -> dict[str, int]:
        return {name: served.route.generation for name, served in self.served.items()}
