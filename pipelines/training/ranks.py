"""One training in several processes: which one this is, by `shared.contracts.ranks`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from shared.contracts.ranks import MEET, RANK, RANKS, TRAINING, WAIT
from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid

MEETING = 300.0
"""Seconds: pods don't start at once."""
PATIENCE = 120.0


class LeftAlone(Exception):
    """Another rank is gone, or doesn't answer."""


class PartDone(Exception):
    """What a rank that doesn't lead ends its training with: the model is rank 0's."""


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
    """What this process is; None where nobody told it."""
    if RANK not in environment or processes_of(spec) == 1:
        return None
    try:
        number, count, patience = int(environment[RANK]), int(environment[RANKS]), float(environment.get(WAIT, PATIENCE))
        host, _, port = environment[MEET].rpartition(":")
        rank = Rank(number, count, host, int(port), patience)
    except (KeyError, ValueError):
        raise Invalid(f"{RANK} is set, so {RANKS} (a number) and {MEET} (host:port of rank 0) have to be, too") from None
    if count != processes_of(spec) or not 0 <= number < count or not host or patience <= 0:
        raise Invalid(f"{RANK}={number} of {RANKS}={count} at {environment[MEET]} is none of model.train.processes: {processes_of(spec)}")
    return rank
