"""Stored features: fitted tables too large for the served graph, computed beforehand by key with the same graph.

The served graph takes such a feature as an input: from the feature store for users, from the catalogue for items. A missing key gets the
table's value for unknown keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from pipelines.features.columns import BLANK, NULL, UNKNOWN, Kind
from pipelines.features.lowering import Lowering
from pipelines.features.operators.base import Feature, Operator
from pipelines.features.operators.categorify import Categorify, MultiHot
from pipelines.features.operators.lag import Lag
from pipelines.features.operators.sequence import Sequence
from pipelines.features.operators.target import CountEncode, TargetEncode

LIMIT = 1_000_000
"""Maximum rows of a table in the served graph, unless the spec sets another limit."""
STORED = "@stored"
Cut = Categorify | MultiHot | TargetEncode | CountEncode | Lag | Sequence


@dataclass(frozen=True)
class StoredInput:
    """Input of the served unit that replaces a table."""

    operator: Cut
    feature: Feature
    name: str
    kind: Kind
    side: Literal["user", "item"]
    width: int | None


def stored(operators: tuple[Operator, ...], limit: int | None) -> tuple[StoredInput, ...]:
    """Returns the inputs that replace tables; only of users and items, as time-dependent values have no key."""
    return tuple(stored_input for operator in operators for stored_input in _of(operator, limit if limit is not None else LIMIT))


def _of(operator: Operator, limit: int) -> list[StoredInput]:
    if isinstance(operator, Sequence) and operator.bounded:
        return []  # depends on the request's time
    if not isinstance(operator, Cut) or max((len(frame) for frame in operator.saved().frames.values()), default=0) <= limit:
        return []
    if isinstance(operator, Lag | Sequence):
        (feature,) = operator.features
        kind = operator.of.kind if isinstance(operator, Lag) else "int64"
        return [StoredInput(operator, feature, feature.name + STORED, kind, "user", feature.width)]
    stored_inputs = []
    for feature in operator.features:
        if feature.side in ("user", "item"):
            kind = "int64" if feature.kind == "code" else "float32"
            stored_inputs.append(StoredInput(operator, feature, feature.name + STORED, kind, feature.side, feature.width))
    return stored_inputs


def lower(build: Lowering, stored_inputs: tuple[StoredInput, ...]) -> None:
    """Adds an operator's outputs from its stored inputs."""
    for stored_input in stored_inputs:
        build.take(stored_input.name, stored_input.kind, stored_input.width)
        if isinstance(stored_input.operator, Lag):
            blank = (
                build.node("IsNaN", stored_input.name)
                if stored_input.kind == "float32"
                else build.node("Equal", stored_input.name, _blank(build))
            )
            stored_input.operator.lower_last(build, stored_input.name, blank)
        elif stored_input.kind == "float32":
            default = build.constant(np.array(_stranger(stored_input), np.float32))
            build.gives(stored_input.feature.made, build.node("Where", build.node("IsNaN", stored_input.name), default, stored_input.name))
        else:
            blank, default = (
                build.node("Equal", stored_input.name, _blank(build)),
                build.constant(np.array(_stranger(stored_input), np.int64)),
            )
            if isinstance(stored_input.operator, Categorify) and (vocabulary := stored_input.operator.state).buckets is not None:
                default = vocabulary.lower_unknown(build, stored_input.operator.column)
            codes = build.cast(build.node("Where", blank, default, stored_input.name), "INT32")
            if isinstance(stored_input.operator, Sequence):
                stored_input.operator.give(build, codes)
            else:
                build.gives(stored_input.feature.made, codes)


def with_values(frame: pl.DataFrame, stored_inputs: tuple[StoredInput, ...]) -> pl.DataFrame:
    """Adds the values of stored inputs to a prepared table of users or items."""
    for stored_input in stored_inputs:
        operator = stored_input.operator
        if isinstance(operator, Lag):
            keys, last = operator.last
            last_values = keys.with_columns(last.alias(stored_input.name))
            frame = frame.join(last_values, on=operator.by.name, how="left", maintain_order="left")
        else:
            made = operator.apply(frame.lazy(), "serve").select(stored_input.feature.made).collect().to_series()
            if stored_input.kind == "int64":
                made = made.cast(pl.Int64 if stored_input.width is None else pl.Array(pl.Int64, stored_input.width))
            frame = frame.with_columns((made if stored_input.width is None else made.arr.to_list()).alias(stored_input.name))
    return frame


def _blank(build: Lowering) -> str:
    return build.constant(np.array(BLANK["int64"], np.int64))


def _stranger(stored_input: StoredInput) -> float:
    operator = stored_input.operator
    if isinstance(operator, TargetEncode):
        target = operator.targets[[out.name for out in operator.outputs].index(stored_input.feature.made)]
        return float(operator.table[1][target][0][-1])
    if isinstance(operator, CountEncode):
        return float(operator.values[-1])
    return UNKNOWN if isinstance(operator, Categorify) else NULL
