"""Draft of a conversion: entries by output, notes and faults; puts entries into an order that a spec accepts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from shared.contracts.error_text import fault_message
from shared.contracts.features import MAX_CODES, Operator
from shared.domain.errors import Invalid

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,119}")
MAX_LISTED = 2_000
"""Longer vocabularies aren't written into a spec, which must stay readable."""
MAX_LENGTH = 256
_SHOWN = 10
Entry = Mapping[str, Any]
_ENTRY: TypeAdapter[Any] = TypeAdapter(Operator)


@dataclass(frozen=True)
class Converted:
    features: tuple[Entry, ...]
    notes: tuple[str, ...]
    """Differences from the original."""


@dataclass(frozen=True)
class LayerValue:
    """Input or output of a layer: a data column, codes or a number made of a column, or a value outside the features."""

    kind: Literal["raw", "codes", "number", "left", "broken"]
    name: str
    dtype: str | None = None
    several: bool = False
    length: int | None = None


class NoCounterpart(Exception):
    """Conversion without a counterpart; the text names an alternative."""


@dataclass
class SpecDraft:
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    _wanted: dict[str, str] = field(default_factory=dict)
    _codes: dict[str, Entry] = field(default_factory=dict)
    _numbers: dict[str, list[Entry]] = field(default_factory=dict)
    _buckets: dict[str, Entry] = field(default_factory=dict)
    _crosses: dict[str, Entry] = field(default_factory=dict)
    _hot: dict[str, Entry] = field(default_factory=dict)

    @contextmanager
    def trying(self, where: str) -> Any:
        """Records a failed conversion as a fault and continues."""
        try:
            yield
        except NoCounterpart as error:
            self.faults.append(f"{where}: {error}")

    def note(self, where: str, text: str) -> None:
        if (line := f"{where}: {text}") not in self.notes:
            self.notes.append(line)

    def codes(self, value: LayerValue, options: Entry) -> LayerValue:
        """Encodes ids or words."""
        column = _column(value.name)
        if value.several:
            length = {"max_length": min(value.length, MAX_LENGTH)} if value.length else {}
            entry: Entry = {"multi_hot": column, **length, **options}
        else:
            entry = {"categorify": column, **options}
        _put(self._codes, column, entry, f"'{column}' is encoded in two ways")
        return LayerValue("codes", column, several=value.several)

    def wanted(self, value: LayerValue, where: str) -> LayerValue:
        """Returns a column's codes; `converted` adds a default encoding if no layer defines one."""
        self._wanted.setdefault(_column(value.name), where)
        return LayerValue("codes", value.name, several=value.several)

    def bucketised(self, value: LayerValue, how: Entry) -> LayerValue:
        column = _column(value.name)
        entry: Entry = {"bucketise": column, **how}
        if value.kind != "raw":
            raise NoCounterpart(f"its input is derived from '{column}', but buckets use the raw column: set the bounds for raw values")
        _put(self._buckets, column, entry, f"'{column}' is cut into buckets in two ways")
        return LayerValue("codes", f"{column}_bucket")

    def number(self, value: LayerValue, entry: Entry) -> LayerValue:
        """Appends an in-place change to the column's earlier changes."""
        column = _column(value.name)
        done = self._numbers.setdefault(column, [])
        if value.kind == "raw" and done and done[0] != entry:
            raise NoCounterpart(f"'{column}' is used both unchanged and changed, or changed in two ways: keep one way")
        if entry not in done:
            done.append(entry)
        return LayerValue("number", column)

    def crossed(self, values: list[LayerValue], buckets: int) -> LayerValue:
        names = [value.name for value in values]
        name = "_x_".join(names)
        if not 2 <= len(names) <= 4:
            raise NoCounterpart(f"a cross takes two to four features, not {len(names)}: cross some features first")
        if buckets < 2 or buckets > MAX_CODES:
            raise NoCounterpart(f"a cross has 2 to {MAX_CODES:,} buckets")
        _put(self._crosses, name, {"cross": names, "buckets": buckets}, f"'{name}' is made in two ways")
        return LayerValue("codes", name, several=any(value.several for value in values))

    def hot(self, value: LayerValue, codes: int | None = None) -> LayerValue:
        """Adds a one-hot feature. `codes`: maximum number of codes."""
        wide = {"max_width": codes} if codes and codes > 1_000 else {}
        self._hot.setdefault(value.name, {"one_hot": value.name, **wide})
        self.note(f"'{value.name}'", "its codes stay a feature too, which the family mlp embeds in addition to the one-hot values")
        return LayerValue("left", value.name)

    def converted(self, source: str) -> Converted:
        if self.faults:
            more = [f"and {len(self.faults) - _SHOWN} more"] if len(self.faults) > _SHOWN else []
            raise Invalid(f"{source}: " + "; ".join([*self.faults[:_SHOWN], *more]))
        for column, where in self._wanted.items():
            if column not in self._codes:
                self.note(where, f"'{column}' gets its own codes, because a cross takes codes")
                self._codes[column] = {"categorify": column}
        numbers = [entry for entries in self._numbers.values() for entry in entries]
        codes, buckets, crosses, hot = (list(entries.values()) for entries in (self._codes, self._buckets, self._crosses, self._hot))
        features = (*codes, *buckets, *numbers, *crosses, *hot)
        if not features:
            raise Invalid(f"{source}: no preprocessing layer or feature column found")
        return Converted(tuple(_checked(entry, source) for entry in features), tuple(self.notes))


def _checked(entry: Entry, source: str) -> Entry:
    """Validates the entry as the spec does."""
    try:
        _ENTRY.validate_python(entry)
    except ValidationError as error:
        raise Invalid(f"{source}: {'; '.join(fault_message(fault) for fault in error.errors()[:_SHOWN])}") from None
    return entry


def _column(name: str) -> str:
    if not _COLUMN.fullmatch(name):
        raise NoCounterpart(
            f"'{name}' is not a column name of a spec: use letters, digits and underscores (`names` of the data can rename it)"
        )
    return name


def _put(entries: dict[str, Entry], name: str, entry: Entry, doubled: str) -> None:
    if entries.setdefault(name, entry) != entry:
        raise NoCounterpart(f"{doubled}: keep one way, or copy the column under another name for the other")


def listed(draft: SpecDraft, where: str, values: Any) -> Entry:
    """Returns options for an explicit vocabulary: its values, or counting from the data if the list is too long."""
    if not isinstance(values, list) or any(isinstance(value, bool) or not isinstance(value, int | str) for value in values):
        raise NoCounterpart("its vocabulary is not a list of integers or of text")
    if len({type(value) for value in values}) > 1:
        raise NoCounterpart("its vocabulary mixes integers and text")
    if "" in values:
        draft.note(where, "blank text is a value of its vocabulary; it becomes null")
        values = [value for value in values if value != ""]
    if not values:
        raise NoCounterpart("its vocabulary is empty")
    if len(set(values)) < len(values):
        raise NoCounterpart("its vocabulary has a value twice")
    if len(values) > MAX_LISTED:
        draft.note(where, f"its {len(values):,} values are not listed: the vocabulary is counted in the data, with at most as many values")
        return {"max_size": len(values)}
    return {"values": values}


def whole_number(config: Entry, name: str, least: int = 1) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_CODES:
        raise NoCounterpart(f"'{name}' is {value!r}: expected a whole number from {least} to {MAX_CODES:,}")
    return value


def numbers(value: Any, name: str) -> list[float]:
    floats: list[float] = []
    with suppress(TypeError, ValueError):
        floats = [float(number) for number in value]
    if not floats or not all(math.isfinite(number) for number in floats):
        raise NoCounterpart(f"'{name}' is not a list of numbers")
    return floats
