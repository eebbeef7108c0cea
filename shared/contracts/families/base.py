"""Base class of the parameters of model families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, JsonValue, RootModel

from shared.contracts.ranges import NumberRange
from shared.contracts.strict import Strict

UnknownItems = Annotated[
    float | None,
    Field(
        ge=0,
        lt=1,
        description="Share of the training rows that show an unknown item, so that new items are scored by their other features. If "
        "absent, 0.1 for items with features besides the key, else 0.02.",
    ),
]

ABSENT_NEGATIVES = (
    "Absent: 0 if the gates measure `auc` and no ranking, and the training rows (in a warm run: all pairs so far) hold at least as many "
    "negatives as positives; else {usual}. With 0, scores are rates. A refit draws as many as its training."
)


class FamilyParams(Strict):
    meaning: ClassVar[str]
    """Description of the family for the reference."""
    no_steps: ClassVar[str | None] = None
    """Why the family takes no training steps, so that only the `train` settings in `heeds` apply; None if it takes steps."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """Settings of `train` that a family with steps does not support, and why."""
    not_on: ClassVar[Mapping[str, str]] = {}
    """Frameworks that cannot train a family with steps, and why."""
    chooses_epochs: ClassVar[bool] = False
    """Whether the family chooses the number of epochs if `train.epochs` is `auto`."""
    keeps_rows: ClassVar[bool] = True
    """Whether a warm run keeps its parent's vectors by code and adds new ones."""
    replays: ClassVar[bool] = True
    """Whether a warm run learns only from its own rows, so that older rows among them prevent forgetting."""
    ranges: ClassVar[Mapping[str, NumberRange]] = {}
    """Default search ranges of `eyas tune`, by name in the spec's `model`."""

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the family's own defaults of `train` for these parameters, as given in the spec."""
        return {}

    @property
    def heeds(self) -> frozenset[str]:
        """Settings of `train` that apply to a family without steps."""
        return frozenset({"seed"})

    @property
    def takes_weights(self) -> bool:
        """Whether the weights of positives have an effect on training."""
        return False

    def wants_both_labels(self, full: bool) -> bool:
        """Whether rows with only one label are an error; feedback often has only positives."""
        return False


class OwnParams(RootModel[dict[str, JsonValue]]):
    """Parameters of a custom family, `module:Class`; the family validates them before any data is read."""

    model_config = ConfigDict(frozen=True)

    no_steps: ClassVar[str | None] = None
    cannot: ClassVar[Mapping[str, str]] = {}
    not_on: ClassVar[Mapping[str, str]] = {}
    chooses_epochs: ClassVar[bool] = False
    heeds: ClassVar[frozenset[str]] = frozenset()
    keeps_rows: ClassVar[bool] = True
    replays: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    def wants_both_labels(self, full: bool) -> bool:
        """A custom family decides by itself."""
        return False
