"""Slices of the traffic, decided when an answer is given, from the request's context.

So the counts of a slice stay exact when a later spec changes the slice, and there are at most as many slices as a spec may declare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.domain.attributes import Value
from shared.domain.expressions import Tree, truth

MOST = 16
NEW, KNOWN = "new_users", "known_users"
"""Slices of every recommender: users that the version does not know, and all others."""


@dataclass(frozen=True)
class Slices:
    """Conditions by name; they read only the request's context."""

    conditions: Mapping[str, Tree] = field(default_factory=dict)

    def of(self, context: Mapping[str, Value]) -> tuple[str, ...]:
        """Returns the names of the matching slices, sorted. An unknown condition does not match."""
        return tuple(sorted(name for name, tree in self.conditions.items() if truth(tree, {}, context)))
