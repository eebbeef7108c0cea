"""Kinds of operators that other modules distinguish."""

from __future__ import annotations

from typing import TypeGuard

from pipelines.features.operators.lag import Lag
from pipelines.features.operators.sequence import Sequence

Ordered = Lag | Sequence


def is_ordered(operator: object) -> TypeGuard[Ordered]:
    """True if training needs a user's rows together and in order."""
    return isinstance(operator, Ordered)
