"""Search space: ranges of the settings that the model accepts.

One setting can decide whether another has an effect, and the model rejects settings without effect. A setting is therefore chosen only
if the model accepts its whole range together with the earlier choices; categorical settings come before numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from shared.contracts.families import FamilyParams
from shared.contracts.models import Model
from shared.contracts.ranges import NumberRange
from shared.contracts.strict import read
from shared.domain.errors import Invalid

Document = Mapping[str, Any]
Chosen = dict[str, Any]
Pick = Callable[[str, NumberRange, bool], Any]
"""Chooses a value from name, range, and whether the number is an integer."""
MOST_CONTEXTS = 512
SHOWN = ("params", "train")


@dataclass(frozen=True)
class Space:
    base: Document
    """The spec's `model` without the searched settings."""
    ranges: Mapping[str, NumberRange]
    """Ranges in the order of choice."""
    integers: frozenset[str]
    """Names of integer settings."""
    before: Chosen
    """The given values of the searched settings that have an effect."""

    @property
    def before_is_within(self) -> bool:
        return all(self.ranges[name].holds(value) for name, value in self.before.items())

    def choose(self, pick: Pick) -> Chosen:
        chosen: Chosen = {}
        for name, range_ in self.ranges.items():
            if _fits(self.base, name, range_, chosen) is None:
                chosen[name] = pick(name, range_, name in self.integers)
        return chosen

    def model(self, chosen: Chosen) -> Model:
        return _model(self.base, chosen)


def space_of(model: Document, ranges: Mapping[str, NumberRange]) -> Space:
    """Builds the space; without ranges, from the family's own ranges. Raises `Invalid` for ranges that the model does not accept."""
    whole_model = _read(model)
    ranges = dict(ranges) or dict(getattr(whole_model.params, "ranges", {}))
    if not ranges:
        raise Invalid(f"nothing to search: the family '{whole_model.family}' has no default ranges: add --search NAME=FROM..TO")
    _read({**model, "tune": {name: range_.model_dump(by_alias=True, exclude_unset=True) for name, range_ in ranges.items()}})
    base = _without(model, ranges)
    if (fault := _fault(base, {})) is not None:
        raise Invalid(fault)
    choices = {name: range_ for name, range_ in ranges.items() if range_.of is not None}
    for name, range_ in ranges.items():
        _check(base, name, range_, choices)
    ordered = _ordered(base, ranges)
    integers = frozenset(name for name, range_ in ordered.items() if range_.of is None and _is_whole(base, name, range_, choices))
    before = _before(base, whole_model, ordered)
    return Space(base, ordered, integers, before)


def _check(base: Document, name: str, range_: NumberRange, choices: Mapping[str, NumberRange]) -> None:
    """Raises `Invalid` if no choice of the other settings lets the model accept the whole range."""
    faults = [_fits(base, name, range_, context) for context in _contexts(name, choices)]
    if None not in faults:
        raise Invalid(f"--search {name.removeprefix('params.')}: {faults[0]}")


def _ordered(base: Document, ranges: Mapping[str, NumberRange]) -> dict[str, NumberRange]:
    """Orders ranges independently of the given order."""

    def rank(name: str) -> tuple[int, str]:
        return (2 if ranges[name].of is None else int(_fits(base, name, ranges[name], {}) is not None)), name

    return {name: ranges[name] for name in sorted(ranges, key=rank)}


def _before(base: Document, model: Model, ranges: Mapping[str, NumberRange]) -> Chosen:
    chosen: Chosen = {}
    for name, range_ in ranges.items():
        if _fits(base, name, range_, chosen) is None:
            chosen[name] = _value(model, name)
    return chosen


def _is_whole(base: Document, name: str, range_: NumberRange, choices: Mapping[str, NumberRange]) -> bool:
    """Returns whether a setting is an integer: it rejects fractions. For custom families, integer bounds decide."""
    if not (isinstance(range_.low, int) and isinstance(range_.high, int)):
        return False
    if not isinstance(_read(base).params, FamilyParams):
        return True
    return all(_fault(base, context | {name: range_.low + 0.5}) is not None for context in _contexts(name, choices))


def _contexts(name: str, choices: Mapping[str, NumberRange]) -> Iterator[Chosen]:
    """Yields no choice first, then all combinations of the other categorical settings."""
    others = {other: range_ for other, range_ in choices.items() if other != name}
    values = [[(other, None), *((other, value) for value in range_.of or ())] for other, range_ in others.items()]
    for combination in islice(product(*values), MOST_CONTEXTS):
        yield {other: value for other, value in combination if value is not None}


def _fits(base: Document, name: str, range_: NumberRange, chosen: Chosen) -> str | None:
    """Returns why the model rejects an end of the range, or None."""
    faults = (_fault(base, chosen | {name: value}) for value in range_.ends)
    return next((fault for fault in faults if fault is not None), None)


def _fault(base: Document, chosen: Chosen) -> str | None:
    try:
        _model(base, chosen)
    except Invalid as error:
        return str(error)
    return None


def _model(base: Document, chosen: Chosen) -> Model:
    document = deepcopy(dict(base))
    for name, value in chosen.items():
        part, _, key = name.partition(".")
        document[part] = {**document.get(part, {}), key: value}
    return _read(document)


def _read(document: Document) -> Model:
    return read(Model, document, "model")


def _without(model: Document, names: Mapping[str, Any]) -> dict[str, Any]:
    document = {key: value for key, value in model.items() if key != "tune"}
    for part in SHOWN:
        if part in document:
            document[part] = {key: value for key, value in document[part].items() if f"{part}.{key}" not in names}
    return document


def _value(model: Model, name: str) -> Any:
    part, _, key = name.partition(".")
    settings = getattr(model, part).model_dump(mode="json")
    return settings.get(key)
