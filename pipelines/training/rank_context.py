"""What one process of a training knows of the others: of one alone, nothing. The others' side is `pipelines.training.group`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class RankContext(Protocol):
    @property
    def leads(self) -> bool:
        """Whether it is the one that looks, keeps, and publishes."""

    def led(self, work: Callable[[], Any]) -> Any:
        """What the one that leads makes of it, known to all: JSON. The others wait."""

    def looking(self) -> None:
        """Before the one that leads looks at what all have trained."""

    def wish(self, wanted: Callable[[], bool]) -> None:
        """Asked before a step, of the one that leads: whether all are to stand still after it."""

    def granted(self, wanted: Callable[[], bool]) -> bool:
        """After the step: whether all do."""


class Alone:
    """Implements Together."""

    leads = True

    def led(self, work: Callable[[], Any]) -> Any:
        return work()

    def looking(self) -> None:
        return None

    def wish(self, wanted: Callable[[], bool]) -> None:
        return None

    def granted(self, wanted: Callable[[], bool]) -> bool:
        return wanted()


ALONE = Alone()
