"""The spec's `serve.order`: rules that change the order of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Discriminator, Field, Tag, model_validator

from shared.contracts.entries import entry, written
from shared.contracts.events import Id
from shared.contracts.quantities import Fraction
from shared.contracts.strict import Strict
from shared.domain.attributes import NAME_PATTERN
from shared.domain.errors import Invalid
from shared.domain.expression_text import LONGEST, parse_expression
from shared.domain.expressions import Expression

_YAML_FILE = r".{1,1000}\.(yaml|yml|json)"
MOST = 64
"""Maximum number of rules in a list, and of campaigns."""


def _expression(value: Any) -> Any:
    try:
        return parse_expression(value).text if isinstance(value, str) else value
    except Invalid as error:
        raise ValueError(str(error)) from None


Condition = Annotated[str, Field(max_length=LONGEST), BeforeValidator(_expression)]
Key = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Place = Annotated[int, Field(strict=True, ge=1, le=1000)]


class Boost(Strict):
    """Moves matching items up."""

    boost: Condition = Field(description="Expression that selects the items.")
    by: float = Field(0.5, gt=0, le=10, description="Increase of the score, in standard deviations of the candidates' scores.")


class Bury(Strict):
    """Moves matching items down."""

    bury: Condition = Field(description="Expression that selects the items.")
    by: float | None = Field(None, gt=0, le=10, description="Decrease of the score, in standard deviations; absent: below all others.")


class PinnedId(Strict):
    """An item by its id."""

    item: Id = Field(description="Id of the item.")

    def __str__(self) -> str:
        return str(self.item)


def _form(pin: Any) -> str:
    return "item" if isinstance(pin, Mapping | PinnedId) else "expression" if isinstance(pin, str) else "integer"


Pinned = Annotated[
    Annotated[Key, Tag("integer")] | Annotated[PinnedId, Tag("item")] | Annotated[Condition, Tag("expression")], Discriminator(_form)
]


class Pin(Strict):
    """Puts an item in a place, independent of its score."""

    pin: Pinned = Field(
        description="An item: an integer id, or `{item: ID}` for a text id. Or an expression: the best candidate for which it is true."
    )

    @property
    def item(self) -> int | str | None:
        """Id of the pinned item; None for an expression."""
        return self.pin.item if isinstance(self.pin, PinnedId) else self.pin if isinstance(self.pin, int) else None

    at: Place = Field(1, description="Place in the answer, from 1; a shorter answer does not show the item.")


class Quota(Strict):
    """Limits the number of matching items in an answer."""

    quota: Condition = Field(description="Expression that selects the items.")
    at_most: int | None = Field(None, ge=0, le=1000, description="Maximum number of these items, even if the answer is shorter for it.")
    at_least: int | None = Field(None, ge=1, le=1000, description="Minimum number of these items, as far as there are candidates.")

    @model_validator(mode="after")
    def _bounds(self) -> Quota:
        if self.at_most is None and self.at_least is None:
            raise ValueError("a quota needs 'at_most' or 'at_least'")
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least} is greater than at_most {self.at_most}")
        return self


class Each(Strict):
    """Limits the number of items with the same value of an attribute."""

    each: str = Field(pattern=f"^{NAME_PATTERN}$", description="An attribute with one value per item, such as `artist`.")
    at_most: int = Field(ge=1, le=1000, description="Maximum number of items with the same value; items without a value are not limited.")


_ENTRIES: dict[str, type[Strict]] = {"boost": Boost, "bury": Bury, "pin": Pin, "quota": Quota, "each": Each}
_read = entry("rule", _ENTRIES, frozenset(), "{boost: \"'Drama' in genres\", by: 0.5} or {pin: 4711, at: 1}")
Rule = Annotated[Boost | Bury | Pin | Quota | Each, BeforeValidator(_read)]
Rules = Annotated[tuple[Rule, ...], Field(max_length=MOST)]


class Campaign(Strict):
    """Rules that apply in a time range."""

    name: str = Field(min_length=1, max_length=80, description="Name that `explain` shows.")
    start: AwareDatetime = Field(alias="from", description="Start with a time zone, such as 2026-12-01T00:00:00+01:00.")
    until: AwareDatetime = Field(description="End; from this time on the rules do not apply.")
    rules: Rules = Field(min_length=1, description="Rules of the campaign; they have priority over the permanent rules.")

    @model_validator(mode="after")
    def _lasts(self) -> Campaign:
        if self.start >= self.until:
            raise ValueError(f"campaign '{self.name}' ends before it begins: 'until' must be later than 'from'")
        return self


class Explore(Strict):
    """Shows another good candidate in one place of some answers, by chance; items that are never shown get no feedback."""

    rate: Fraction = Field(
        0.05, ge=0, le=1, description="Share of answers with exploration in one place; 0: none. Impressions store every item's propensity."
    )
    among: int = Field(50, ge=1, le=1000, description="Number of next candidates from which one is drawn, each with the same probability.")


class CampaignsFile(Strict):
    """File from which the campaigns were read when the spec was applied."""

    uri: Annotated[str, written(_YAML_FILE, "the URI of a file of campaigns, whose name ends in .yaml, .yml or .json")] = Field(
        description="YAML file with a list of campaigns: a path or s3://BUCKET/KEY, under one of the operator's data roots."
    )
    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="Digest of the file as it was read, set by the platform. Absent: the file is read now."
    )


def _or_uri(schema: dict[str, Any]) -> None:
    inline = {name: schema.pop(name) for name in ("type", "items", "maxItems") if name in schema}
    schema["anyOf"] = [inline, {"type": "string"}]


class Order(Strict):
    rules: Rules = Field((), description="Rules `boost`, `bury`, `pin`, `quota` and `each`; their order has no meaning.")
    campaigns: tuple[Campaign, ...] = Field(
        (),
        max_length=MOST,
        description="Rules for a time range. Or the URI of a YAML file with such a list, under one of the operator's data roots: it is "
        "read when the spec is applied, and the campaigns and the file's digest become part of the spec.",
        json_schema_extra=_or_uri,
    )
    campaigns_from: CampaignsFile | None = Field(
        None, exclude_if=lambda file: file is None, description="File from which `campaigns` were read, set by the platform."
    )
    diversity: Fraction = Field(
        0.0,
        ge=0,
        le=1,
        description="Penalty of an item that is similar to one above it (maximal marginal relevance by the version's vectors); 0: none. "
        "Needs `serve.retrieve`.",
    )
    explore: Explore = Field(Explore(), description="Shows other good candidates in a few answers, so that they get feedback.")

    @model_validator(mode="before")
    @classmethod
    def _campaigns_by_uri(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get("campaigns"), str):
            if value.get("campaigns_from") is not None:
                raise ValueError("campaigns: the URI is set here and in campaigns_from; leave campaigns_from out")
            return {**value, "campaigns": (), "campaigns_from": {"uri": value["campaigns"]}}
        return value

    @model_validator(mode="after")
    def _check_campaigns(self) -> Order:
        if self.unread is not None and self.campaigns:
            raise ValueError("campaigns_from: without sha256 the file is read again; leave out campaigns or campaigns_from")
        return self

    @property
    def unread(self) -> str | None:
        """URI of a file of campaigns that was not read yet."""
        return self.campaigns_from.uri if self.campaigns_from is not None and self.campaigns_from.sha256 is None else None

    @model_validator(mode="after")
    def _check_names(self) -> Order:
        names = [campaign.name for campaign in self.campaigns]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"campaigns: two have the name '{twice[0]}'")
        return self

    def all_rules(self) -> tuple[Rule, ...]:
        return (*self.rules, *(rule for campaign in self.campaigns for rule in campaign.rules))

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(expression for rule in self.all_rules() if (expression := condition(rule)) is not None)


def condition(rule: Rule) -> Expression | None:
    """Returns the expression that selects a rule's items; None if the rule selects them otherwise."""
    match rule:
        case Boost():
            text: str | int | PinnedId = rule.boost
        case Bury():
            text = rule.bury
        case Pin():
            text = rule.pin
        case Quota():
            text = rule.quota
        case Each():
            return None
    return parse_expression(text) if isinstance(text, str) else None
