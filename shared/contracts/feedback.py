"""The spec's `feedback`: the kinds of events, and which of them are positives."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from shared.contracts.entries import written
from shared.contracts.events import KIND
from shared.contracts.quantities import MOST_WEIGHT, PositiveRule
from shared.contracts.strict import Strict

IMPRESSION = "impression"
KindName = Annotated[
    str,
    written(KIND, "a kind's name: lower-case letters, digits and underscores, at most 40, beginning with a letter"),
    Field(json_schema_extra={"pattern": f"^{KIND}$"}),
]


class Kind(Strict):
    positive: Literal["always", "never", "by_label"] = Field(
        "always",
        description="Whether an event of this kind is a positive, which is a hit of its answer, a seen item, and a positive in training. "
        "`by_label`: if its value meets `schema.label.positive`. `never`: the event is stored, but not used in training.",
    )
    conversion: bool = Field(False, description="Whether a positive of this kind makes its answer a conversion.")
    weight: float = Field(
        1.0,
        gt=0,
        le=MOST_WEIGHT,
        description="Weight of a positive of this kind in an answer's engagement, and in training if `schema.label.positive` has weights.",
    )

    @model_validator(mode="after")
    def _check_conversion(self) -> Kind:
        if self.conversion and self.positive == "never":
            raise ValueError("a conversion must be a positive; set positive: always or by_label")
        return self


BUILT_IN: Mapping[str, Kind] = {
    "click": Kind(),
    "purchase": Kind(conversion=True),
    "rating": Kind(positive="by_label"),
    "view": Kind(positive="never"),
}


def kinds_with_listed(kinds: Mapping[str, Any], positive: Sequence[Any] | Mapping[Any, Any]) -> dict[str, Any]:
    """Returns a spec's `kinds`, and those that the label lists. If a kind is in both, the spec's fields replace the listed ones."""
    listed = _listed_kinds(positive)
    both = {name: {**listed[name], **kinds[name]} for name in listed if name in positive and isinstance(kinds.get(name), Mapping)}
    return {**listed, **kinds, **both}


def _listed_kinds(positive: Sequence[Any] | Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
    """Returns the kinds of events where the label has listed texts: positive if listed, with the weight if it has one, else never."""
    texts = [value for value in positive if isinstance(value, str)]
    if not texts:
        return {}
    named = [text for text in texts if re.fullmatch(KIND, text) and text != IMPRESSION]
    listed = {name: {"positive": "always", "conversion": name in BUILT_IN and BUILT_IN[name].conversion} for name in named}
    if isinstance(positive, Mapping):
        listed = {name: {**kind, "weight": positive[name]} for name, kind in listed.items()}
    return {name: {"positive": "never"} for name in BUILT_IN if name not in listed} | listed


class Feedback(Strict):
    kinds: Mapping[KindName, Kind] = Field(
        {},
        max_length=50,
        description="Kinds in addition to `click`, `purchase` (a conversion), `rating` (by its label) and `view` (never positive), or "
        "changes of these, such as `{share: {weight: 3}, view: {positive: always}}`.",
    )

    @model_validator(mode="after")
    def _check_kinds(self) -> Feedback:
        if IMPRESSION in self.kinds:
            raise ValueError(f"kinds: '{IMPRESSION}' is reserved for shown items; choose another name")
        return self

    def all_kinds(self) -> Mapping[str, Kind]:
        return {**BUILT_IN, **self.kinds}

    def conversions(self) -> frozenset[str]:
        return frozenset(name for name, kind in self.all_kinds().items() if kind.conversion)

    def weights(self) -> Mapping[str, float]:
        return {name: kind.weight for name, kind in self.all_kinds().items()}

    def positive(self, name: str, value: float | None, label: PositiveRule) -> bool:
        """Returns whether an event of a known kind is a positive."""
        kind = self.all_kinds()[name]
        return kind.positive == "always" or (kind.positive == "by_label" and value is not None and label.holds(value))
