"""One training in several processes: who is who, and how they find each other (ADR 33).

A train stage whose spec says `model.train.processes: N` is N processes that do the same: ranks 0 to N-1. Their surroundings tell them:

    EYAS_RANK      which one it is, from 0
    EYAS_RANKS     how many there are, the spec's `processes`
    EYAS_MEET      host:port of rank 0, which listens there on all addresses; the others ask until it answers, MEETING seconds at most
    EYAS_PATIENCE  seconds that a rank waits for another one in the midst of training (PATIENCE if absent)

Each reads the same stage spec in a scratch folder of its own, fetches the inputs itself, and makes the same batches. At EYAS_MEET they
exchange small words (a TCP store); the numbers go from each rank to each other one, on ports that the system chooses: so the ranks of one
stage have to reach each other on all ports. Nobody else has to reach them.

Rank 0 alone publishes: the manifest, checkpoints, how far it is. Its exit code is the stage's: 0 published, 2 refused (its manifest says
why). The others end with 0 when they have done their part, which is before rank 0 publishes. A rank that another one leaves alone, or
that waits in vain, ends with LEFT (3) and one line on stderr; any other code is its own fault. No rank goes on with fewer: the attempt is
lost as a whole, and the next one goes on from rank 0's checkpoint.

A stage that is started without EYAS_RANK starts its ranks itself, as processes of this machine (`pipelines.stages.ranks`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from shared.contracts.stage import StageSpec
from shared.domain.errors import Invalid

RANK, RANKS, MEET, WAIT = "EYAS_RANK", "EYAS_RANKS", "EYAS_MEET", "EYAS_PATIENCE"
MEETING = 300.0
"""Seconds: pods don't start at once."""
PATIENCE = 120.0
LEFT = 3
"""The exit code of a rank that lost the others."""


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
    return spec.recommender.model.train.processes if spec.stage == "train" else 1


def rank_of(spec: StageSpec, environment: Mapping[str, str] = os.environ) -> Rank | None:
    """What this process is; None where nobody told it."""
    if RANK not in environment or processes_of(spec) == 1:
        return None
    try:
        number, count, patience = int(environment[RANK]), int(environment[RANKS]), float(environment.get(WAIT, PATIENCE))
        host, _, port = environment[MEET].rpartition(":")
        found = Rank(number, count, host, int(port), patience)
    except (KeyError, ValueError):
        raise Invalid(f"{RANK} is set, so {RANKS} (a number) and {MEET} (host:port of rank 0) have to be, too") from None
    if count != processes_of(spec) or not 0 <= number < count or not host or patience <= 0:
        raise Invalid(f"{RANK}={number} of {RANKS}={count} at {environment[MEET]} is none of model.train.processes: {processes_of(spec)}")
    return found
