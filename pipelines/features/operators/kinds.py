"""Kinds of operators that others have to tell apart."""

from __future__ import annotations

from typing import TypeGuard

from pipelines.features.operators.lag import Lag
from pipelines.features.operators.sequence import Sequence

Ordered = Lag | Sequence


def is_ordered(operator: object) -> TypeGuard[Ordered]:
    """Whether training needs a user's rows together and in order."""
    return isinstance(operator, Ordered)
