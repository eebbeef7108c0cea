"""Compiles `serve.filter` once per generation of a spec, and tests which items may be shown.

A filter tests rows of a unit against one state of the catalogue and the request's context. Scored, popular and shadow items pass
the same test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from services.gateway.attributes import Attributes
from services.gateway.filter_evaluation import FilterColumns
from services.gateway.loaded_version import LoadedVersion
from services.gateway.sorted_keys import Mask
from shared.contracts.serving import Serve, window
from shared.domain.attributes import Value, check_attributes
from shared.serving.nearest import Rows


@dataclass(frozen=True, eq=False)
class FilterInput:
    """Input of the filter for one request."""

    attributes: Attributes
    """State of the catalogue."""
    context: Mapping[str, Value]
    """The client's attributes of the user."""
    dropped: frozenset[int]
    """Items that the user has seen or the request excludes."""


class Filter:
    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self._trees = tuple(expression.tree for expression in serve.expressions())
        self._texts = tuple(entry for entry in serve.filter if isinstance(entry, str))
        self._available = serve.only_available
        self._window = window(serve.not_seen) if serve.not_seen else None
        self.drops_seen = serve.not_seen is not None

    def check(self, context: Mapping[str, Value]) -> None:
        """Raises Invalid if the context contradicts the spec."""
        if self.serve.context:
            check_attributes(context, self.serve.context, "serve.context")

    def since(self, now: datetime) -> datetime | None:
        """Returns the time from which liked items are dropped; None: no limit."""
        return None if self._window is None else now - self._window

    def keep(self, unit: LoadedVersion, rows: Rows, filter_input: FilterInput) -> Mask:
        """Returns True where a row's item may be shown."""
        allowed = np.ones(len(rows), bool)
        if filter_input.dropped:
            dropped = np.zeros(len(unit.items), bool)
            dropped[unit.rows(filter_input.dropped)] = True
            allowed &= ~dropped[rows]
        if self._trees or (self._available and len(filter_input.attributes)):
            slots = filter_input.attributes.slots.align(unit)[rows]
            if self._available:
                allowed &= filter_input.attributes.available[slots]
            columns = FilterColumns(filter_input.attributes, slots, filter_input.context)
            for tree in self._trees:
                allowed &= columns.look(tree).true
        return allowed

    def dropped(self, unit: LoadedVersion, rows: Rows, filter_input: FilterInput) -> Mapping[str, int]:
        """Counts dropped rows by the first filter entry that drops them, for explanations; `keep` decides what is shown."""
        left, drop_counts = np.ones(len(rows), bool), dict[str, int]()
        slots = filter_input.attributes.slots.align(unit)[rows]
        excluded = np.zeros(len(unit.items), bool)
        excluded[unit.rows(filter_input.dropped)] = True
        tests = [("seen before, or excluded", ~excluded[rows])]
        if self._available and len(filter_input.attributes):
            tests.append(("not available", filter_input.attributes.available[slots]))
        columns = FilterColumns(filter_input.attributes, slots, filter_input.context)
        tests += [(text, columns.look(tree).true) for text, tree in zip(self._texts, self._trees, strict=True)]
        for text, fine in tests:
            count = int((left & ~fine).sum())
            if count:
                drop_counts[text] = count
            left &= fine
        return drop_counts
