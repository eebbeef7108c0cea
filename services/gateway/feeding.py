"""What a version is asked with beside the items: the user's key and values, the moment, the request's context. One row a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from services.gateway.candidates import Wish
from services.gateway.units import Array, Unit
from services.gateway.values import UserValues
from shared.domain.attributes import Value
from shared.domain.stored import Stored
from shared.serving.signature import BLANK, DataType, Input

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Mapping[DataType, Any] = {"int64": np.int64, "float32": np.float32, "string": np.str_}


class Feeding:
    """Safe to share between threads."""

    def __init__(self, values: UserValues) -> None:
        self._values = values

    def of(self, wishes: Sequence[Wish], unit: Unit) -> Mapping[str, Array]:
        """A column for each such input, in the order of the wishes, which are of one recommender."""
        found: dict[str, Array] = {unit.user_input: np.array([wish.user for wish in wishes], np.int64)}
        stored: Sequence[Mapping[str, Stored]] = ()
        if unit.views and wishes:
            first = wishes[0]
            patience = first.filter.serve.deadlines.features.total_seconds()
            stored = self._values.of(first.recommender, unit, [wish.user for wish in wishes], first.at, patience)
        for one in unit.others:
            if one.origin == "store":
                found[one.name] = column(one, [values.get(one.name) for values in stored])
                continue
            if one.name == unit.moment:
                found[one.name] = np.array([(wish.at - _EPOCH) // timedelta(seconds=1) for wish in wishes], np.int64)
            elif one.name == unit.session:
                found[one.name] = column(one, [wish.items[-(one.width or 1) :] for wish in wishes])
            else:
                found[one.name] = column(one, [wish.asked.context.get(one.name) for wish in wishes])
        return found


def column(one: Input, values: Sequence[Value | Stored | None]) -> Array:
    """Blank where a value isn't known, or is of another kind than the input takes."""
    taken, blank = _TAKEN[one.dtype], BLANK[one.dtype]
    if one.width is None:
        return np.array([_first(taken(value), blank) for value in values], _TYPES[one.dtype])
    rows = []
    for value in values:
        several = list(value)[: one.width] if isinstance(value, list | tuple) else []
        known = [_first(taken(each), blank) for each in several]
        rows.append(known + [blank] * (one.width - len(known)))
    return np.array(rows, _TYPES[one.dtype]).reshape(len(values), one.width)


def _first(value: Any, blank: Any) -> Any:
    return blank if value is None else value


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if isinstance(value, int | float) and -(2**63) <= value < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) <= _LARGEST else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_LARGEST = float(np.finfo(np.float32).max)
_TAKEN: Mapping[DataType, Callable[[Any], Any]] = {"int64": _whole, "float32": _number, "string": _text}
