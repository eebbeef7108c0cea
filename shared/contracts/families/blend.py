"""A weighted sum of families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from shared.contracts.families.base import FamilyParams
from shared.contracts.families.keys import EaseParams, ItemKnnParams, MfParams, PopularityParams, TransitionsParams
from shared.contracts.ranges import NumberRange, one_of
from shared.contracts.strict import Strict, unknown_name, without_default

PartName = Literal["ease", "mf", "itemknn", "transitions", "popularity"]
PARTS: Mapping[str, type[FamilyParams]] = {
    "ease": EaseParams,
    "mf": MfParams,
    "itemknn": ItemKnnParams,
    "transitions": TransitionsParams,
    "popularity": PopularityParams,
}
"""Families that a blend may have."""


def _params(value: Any, info: ValidationInfo) -> Any:
    kind = PARTS.get(str(info.data.get("family")))
    return value if kind is None or isinstance(value, kind) else kind.model_validate(value)


class BlendPart(Strict):
    family: PartName = Field(description="Family of the part.")
    params: Annotated[EaseParams | MfParams | ItemKnnParams | TransitionsParams | PopularityParams, BeforeValidator(_params)] = Field(
        {}, validate_default=True, description="Parameters of the family.", json_schema_extra=without_default
    )


def _part(value: Any) -> Any:
    family = value.get("family") if isinstance(value, dict) else value
    if isinstance(family, str) and family not in PARTS:
        raise unknown_name("part of a blend", family, PARTS)
    return value


class BlendParams(FamilyParams):
    """A weighted sum of the scores of two or three families."""

    meaning = "a weighted sum of two or three families that use only keys; the weights are those that rank held-out positives best."
    no_steps = "the parts of a blend are computed without steps"
    replays: ClassVar[bool] = False
    ranges: ClassVar[Mapping[str, NumberRange]] = {
        "params.of": one_of(["ease", "mf"], ["ease", "popularity"], ["mf", "popularity"], ["ease", "mf", "popularity"])
    }

    of: tuple[Annotated[PartName | BlendPart, BeforeValidator(_part)], ...] = Field(
        ("ease", "mf"), min_length=2, max_length=3, description="Parts, each a family's name, or `{family, params}`."
    )
    weights: tuple[Annotated[float, Field(ge=0, le=1000)], ...] | None = Field(
        None,
        description="Weight of each part's score, in units of the score's standard deviation. Absent: the weights that rank held-out "
        "positives best, in tenths; a warm run keeps its parent's.",
    )

    @property
    def parts(self) -> tuple[BlendPart, ...]:
        return tuple(part if isinstance(part, BlendPart) else BlendPart(family=part) for part in self.of)

    @property
    def takes_weights(self) -> bool:
        return any(part.params.takes_weights for part in self.parts)

    @model_validator(mode="after")
    def _check_parts(self) -> BlendParams:
        if self.weights is not None and len(self.weights) != len(self.of):
            raise ValueError(f"params: {len(self.weights)} weights for {len(self.of)} parts; write one weight for each part")
        if self.weights is not None and not any(self.weights):
            raise ValueError("params: all weights are 0; set one above 0")
        return self
