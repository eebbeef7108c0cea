"""What every family's parameters say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, JsonValue, RootModel

from shared.contracts.ranges import Range
from shared.contracts.strict import Strict


class FamilyParams(Strict):
    meaning: ClassVar[str]
    """What the family is, for the reference."""
    no_steps: ClassVar[str | None] = None
    """Why `train` has nothing to say to it but what it heeds, where that is so."""
    cannot: ClassVar[Mapping[str, str]] = {}
    """What of `train` it can't do, though it takes steps, and why."""
    not_on: ClassVar[Mapping[str, str]] = {}
    """Frameworks that don't train it, though it takes steps, and why."""
    keeps_rows: ClassVar[bool] = True
    """Whether a warm run keeps its parent's vectors by code and begins others beside them."""
    replays: ClassVar[bool] = True
    """Whether a warm run learns from the rows that it is given alone, so that older ones among them keep it from forgetting."""
    ranges: ClassVar[Mapping[str, Range]] = {}
    """What `eyas tune` searches where nobody says it; numbers and choices that pay, by name in the spec's `model`."""

    @classmethod
    def usual(cls, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `train` is with these parameters, as they were said, where it says nothing itself and the defaults of all don't fit."""
        return {}

    @property
    def heeds(self) -> frozenset[str]:
        """What of `train` counts for a family that takes no steps."""
        return frozenset({"seed"})

    def wants_both_labels(self, full: bool) -> bool:
        """Whether rows of one label are a mistake. Feedback is mostly positive by nature."""
        return False


class OwnParams(RootModel[dict[str, JsonValue]]):
    """Of a family of one's own, `module:Class`: whatever it takes; it looks at them itself, before any data is read."""

    model_config = ConfigDict(frozen=True)

    no_steps: ClassVar[str | None] = None
    cannot: ClassVar[Mapping[str, str]] = {}
    not_on: ClassVar[Mapping[str, str]] = {}
    heeds: ClassVar[frozenset[str]] = frozenset()
    keeps_rows: ClassVar[bool] = True
    replays: ClassVar[bool] = True

    def wants_both_labels(self, full: bool) -> bool:
        """What it learns from is its own business."""
        return False
