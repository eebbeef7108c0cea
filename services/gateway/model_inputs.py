"""Builds the request inputs of a version: user key, feature values, time and context, one row per request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from services.gateway.candidates import RankingRequest
from services.gateway.loaded_version import Array, LoadedVersion
from services.gateway.user_features import UserFeatures
from shared.domain.attributes import Value
from shared.domain.feature_values import Stored
from shared.serving.signature import BLANK, DataType, Input

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Mapping[DataType, Any] = {"int64": np.int64, "float32": np.float32, "string": np.str_}


class ModelInputs:
    """Thread-safe."""

    def __init__(self, values: UserFeatures) -> None:
        self._values = values

    def of(self, requests: Sequence[RankingRequest], unit: LoadedVersion) -> Mapping[str, Array]:
        """Returns a column per request input, in the order of the ranking requests, which share a recommender."""
        columns: dict[str, Array] = {unit.user_input: np.array([request.user for request in requests], np.int64)}
        stored: Sequence[Mapping[str, Stored]] = ()
        if unit.views and requests:
            first = requests[0]
            patience = first.filter.serve.deadlines.features.total_seconds()
            stored = self._values.of(first.recommender, unit, [request.user for request in requests], first.at, patience)
        for model_input in unit.others:
            if model_input.origin == "store":
                columns[model_input.name] = column(model_input, [values.get(model_input.name) for values in stored])
                continue
            if model_input.name == unit.moment:
                columns[model_input.name] = np.array([(request.at - _EPOCH) // timedelta(seconds=1) for request in requests], np.int64)
            elif model_input.name == unit.session:
                columns[model_input.name] = column(
                    model_input, [request.newest_items(unit)[-(model_input.width or 1) :] for request in requests]
                )
            else:
                columns[model_input.name] = column(
                    model_input, [request.filter_input.context.get(model_input.name) for request in requests]
                )
        return columns


def column(model_input: Input, values: Sequence[Value | Stored | None]) -> Array:
    """Converts values to the input's type; blank for unknown values and values of another kind."""
    convert, blank = _CONVERTERS[model_input.dtype], BLANK[model_input.dtype]
    if model_input.width is None:
        return np.array([_first(convert(value), blank) for value in values], _TYPES[model_input.dtype])
    rows = []
    for value in values:
        several = list(value)[: model_input.width] if isinstance(value, list | tuple) else []
        converted = [_first(convert(each), blank) for each in several]
        rows.append(converted + [blank] * (model_input.width - len(converted)))
    return np.array(rows, _TYPES[model_input.dtype]).reshape(len(values), model_input.width)


def _first(value: Any, blank: Any) -> Any:
    return blank if value is None else value


def _integer(value: Any) -> int | None:
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if isinstance(value, int | float) and -(2**63) <= value < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) <= _LARGEST else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_LARGEST = float(np.finfo(np.float32).max)
_CONVERTERS: Mapping[DataType, Callable[[Any], Any]] = {"int64": _integer, "float32": _number, "string": _text}
