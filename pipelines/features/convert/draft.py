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
class Value:
    """Input or output of a layer: a data column, codes or a number made of a column, or a value outside the features."""

    kind: Literal["raw", "codes", "number", "left", "broken"]
    name: str
    dtype: str | None = None
    several: bool = False
    length: int | None = None


class Cannot(Exception):
    """Conversion without a counterpart; the text names an alternative."""


@dataclass
class Draft:
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
        except Cannot as error:
            self.faults.append(f"{where}: {error}")

    def note(self, where: str, text: str) -> None:
        if (line := f"{where}: {text}") not in self.notes:
            self.notes.append(line)

    def codes(self, value: Value, options: Entry) -> Value:
        """Encodes ids or words."""
        column = _column(value.name)
        if value.several:
            length = {"max_length": min(value.length, MAX_LENGTH)} if value.length else {}
            entry: Entry = {"multi_hot": column, **length, **options}
        else:
            entry = {"categorify": column, **options}
        _put(self._codes, column, entry, f"'{column}' is encoded in two ways")
        return Value("codes", column, several=value.several)

    def wanted(self, value: Value, where: str) -> Value:
        """Returns a column's codes; `converted` adds a default encoding if no layer defines one."""
        self._wanted.setdefault(_column(value.name), where)
        return Value("codes", value.name, several=value.several)

    def bucketised(self, value: Value, how: Entry) -> Value:
        column = _column(value.name)
        entry: Entry = {"bucketise": column, **how}
        if value.kind != "raw":
            raise Cannot(
                f"it cuts what was made of '{column}': here buckets are of the data as it is, so say its bounds in the data's own terms"
            )
        _put(self._buckets, column, entry, f"'{column}' is cut into buckets in two ways")
        return Value("codes", f"{column}_bucket")

    def number(self, value: Value, entry: Entry) -> Value:
        """Appends an in-place change to the column's earlier changes."""
        column = _column(value.name)
        done = self._numbers.setdefault(column, [])
        if value.kind == "raw" and done and done[0] != entry:
            raise Cannot(f"'{column}' is used as it is and changed, or changed in two ways: a spec has one of them")
        if entry not in done:
            done.append(entry)
        return Value("number", column)

    def crossed(self, values: list[Value], buckets: int) -> Value:
        names = [value.name for value in values]
        name = "_x_".join(names)
        if not 2 <= len(names) <= 4:
            raise Cannot(f"a cross takes two to four features, and this one {len(names)}: cross some of them first")
        if buckets < 2 or buckets > MAX_CODES:
            raise Cannot(f"a cross has 2 to {MAX_CODES:,} buckets")
        _put(self._crosses, name, {"cross": names, "buckets": buckets}, f"'{name}' is made in two ways")
        return Value("codes", name, several=any(value.several for value in values))

    def hot(self, value: Value, codes: int | None = None) -> Value:
        """Adds a one-hot feature. `codes`: maximum number of codes."""
        wide = {"max_width": codes} if codes and codes > 1_000 else {}
        self._hot.setdefault(value.name, {"one_hot": value.name, **wide})
        self.note(f"'{value.name}'", "it is there as codes too, which the family mlp embeds, beside the zeros and ones")
        return Value("left", value.name)

    def converted(self, source: str) -> Converted:
        if self.faults:
            more = [f"and {len(self.faults) - _SHOWN} more"] if len(self.faults) > _SHOWN else []
            raise Invalid(f"{source}: " + "; ".join([*self.faults[:_SHOWN], *more]))
        for column, where in self._wanted.items():
            if column not in self._codes:
                self.note(where, f"'{column}' gets codes of its own, for crosses are of codes")
                self._codes[column] = {"categorify": column}
        numbers = [entry for entries in self._numbers.values() for entry in entries]
        codes, buckets, crosses, hot = (list(entries.values()) for entries in (self._codes, self._buckets, self._crosses, self._hot))
        features = (*codes, *buckets, *numbers, *crosses, *hot)
        if not features:
            raise Invalid(f"{source}: nothing in it is a preprocessing layer or a feature column")
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
        raise Cannot(f"a spec can't call a column '{name}': give it a name of letters, digits and underscores (data's `names` renames)")
    return name


def _put(entries: dict[str, Entry], name: str, entry: Entry, doubled: str) -> None:
    if entries.setdefault(name, entry) != entry:
        raise Cannot(f"{doubled}: a spec has one of them; a copy of the column under another name can have the other")


def listed(draft: Draft, where: str, values: Any) -> Entry:
    """Returns options for an explicit vocabulary: its values, or counting from the data if the list is too long."""
    if not isinstance(values, list) or any(isinstance(value, bool) or not isinstance(value, int | str) for value in values):
        raise Cannot("its vocabulary is no list of integers or of text: such values can't be categories here")
    if len({type(value) for value in values}) > 1:
        raise Cannot("its vocabulary mixes integers and text")
    if "" in values:
        draft.note(where, "blank text is a value of its vocabulary; here it is null")
        values = [value for value in values if value != ""]
    if not values:
        raise Cannot("its vocabulary is empty")
    if len(set(values)) < len(values):
        raise Cannot("its vocabulary has a value twice")
    if len(values) > MAX_LISTED:
        draft.note(where, f"its {len(values):,} values aren't written down: the vocabulary is counted in the data, as many at most")
        return {"max_size": len(values)}
    return {"values": values}


def whole_number(config: Entry, name: str, least: int = 1) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_CODES:
        raise Cannot(f"'{name}' is {value!r}: a whole number from {least} to {MAX_CODES:,} is expected")
    return value


def numbers(value: Any, name: str) -> list[float]:
    floats: list[float] = []
    with suppress(TypeError, ValueError):
        floats = [float(number) for number in value]
    if not floats or not all(math.isfinite(number) for number in floats):
        raise Cannot(f"'{name}' isn't a list of numbers")
    return floats
