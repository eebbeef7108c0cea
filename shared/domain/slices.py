"""Slices of the traffic: which of them an answer belongs to is decided when it is given, by what the request says of its user.

So a count of a slice is exact, whatever a later spec calls by that name, and there are never more slices than a spec may declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.domain.attributes import Value
from shared.domain.expressions import Tree, truth

MOST = 16
NEW, KNOWN = "new_users", "known_users"
"""Of every recommender: users whom the version doesn't know, and all others."""


@dataclass(frozen=True)
class Slices:
    """Conditions by name; they look at the request's context alone."""

    conditions: Mapping[str, Tree] = field(default_factory=dict)

    def of(self, context: Mapping[str, Value]) -> tuple[str, ...]:
        """In the order of their names. What isn't known is in no slice."""
        return tuple(sorted(name for name, tree in self.conditions.items() if truth(tree, {}, context)))
