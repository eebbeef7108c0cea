"""Interface between a training process and its other ranks; `pipelines.training.group` implements it for several processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class RankContext(Protocol):
    @property
    def leads(self) -> bool:
        """Whether this rank validates, saves and publishes."""

    def led(self, work: Callable[[], Any]) -> Any:
        """Runs `work` on the leading rank and returns its JSON result on all ranks; the others wait."""

    def looking(self) -> None:
        """Called before the leading rank validates the trained model."""

    def propose_stop(self, wants_stop: Callable[[], bool]) -> None:
        """Called before a step: asks the leading rank whether all ranks stop after it."""

    def granted(self, wants_stop: Callable[[], bool]) -> bool:
        """Called after the step: returns whether all ranks stop."""


class Alone:
    """Implements RankContext for a single process."""

    leads = True

    def led(self, work: Callable[[], Any]) -> Any:
        return work()

    def looking(self) -> None:
        return None

    def propose_stop(self, wants_stop: Callable[[], bool]) -> None:
        return None

    def granted(self, wants_stop: Callable[[], bool]) -> bool:
        return wants_stop()


ALONE = Alone()
