"""Reads this process's rank of a training from the environment (`shared.contracts.ranks`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from shared.contracts.ranks import MEET, RANK, RANKS, TRAINING, WAIT
from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid

MEETING = 300.0
"""Seconds to wait for all ranks, because pods do not start at once."""
PATIENCE = 120.0


class LeftAlone(Exception):
    """Another rank is gone or does not answer."""


class PartDone(Exception):
    """Ends the training of a rank that does not lead: the model is on rank 0."""


@dataclass(frozen=True)
class Rank:
    number: int
    count: int
    host: str
    port: int
    patience: float = PATIENCE

    @property
    def leads(self) -> bool:
        return self.number == 0


def processes_of(spec: StageSpec) -> int:
    return spec.recommender.model.train.processes if spec.stage in TRAINING else 1


def rank_of(spec: StageSpec, environment: Mapping[str, str] = os.environ) -> Rank | None:
    """Returns this process's rank, or None if the environment sets none or the training has one process."""
    if RANK not in environment or processes_of(spec) == 1:
        return None
    try:
        number, count, patience = int(environment[RANK]), int(environment[RANKS]), float(environment.get(WAIT, PATIENCE))
        host, _, port = environment[MEET].rpartition(":")
        rank = Rank(number, count, host, int(port), patience)
    except (KeyError, ValueError):
        raise Invalid(f"{RANK} is set, so {RANKS} (a number) and {MEET} (host:port of rank 0) must be set too") from None
    if count != processes_of(spec) or not 0 <= number < count or not host or patience <= 0:
        raise Invalid(
            f"{RANK}={number} of {RANKS}={count} at {environment[MEET]} does not match model.train.processes: {processes_of(spec)}"
        )
    return rank
