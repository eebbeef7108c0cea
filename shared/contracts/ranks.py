"""What is said to the ranks of a training in several processes, and what their ends say (ADR 33).

A train or refit stage whose spec says `model.train.processes: N` is N processes that do the same: ranks 0 to N-1. Their surroundings tell
them:

    EYAS_RANK      which one it is, from 0
    EYAS_RANKS     how many there are, the spec's `processes`
    EYAS_MEET      host:port of rank 0, which listens there on all addresses; the others ask until it answers, 300 seconds at most
    EYAS_PATIENCE  seconds that a rank waits for another one in the midst of training (120 if absent)

Each reads the same stage spec in a scratch folder of its own, fetches the inputs itself, and makes the same batches. At EYAS_MEET they
exchange small words (a TCP store); the numbers go from each rank to each other one, on ports that the system chooses: so the ranks of one
stage have to reach each other on all ports. Nobody else has to reach them.

Rank 0 alone publishes: the manifest, checkpoints, how far it is. Its exit code is the stage's: 0 published, 2 refused (its manifest says
why). The others end with 0 when they have done their part, which is before rank 0 publishes. A rank that another one leaves alone, or
that waits in vain, ends with LEFT (3) and one line on stderr; any other code is its own fault. No rank goes on with fewer: the attempt is
lost as a whole, and the next one goes on from rank 0's checkpoint.

A stage that is started without EYAS_RANK starts its ranks itself, as processes of this machine (`pipelines.stages.launcher`).
"""

from __future__ import annotations

TRAINING = ("train", "refit")
"""Stages of `model.train.processes` processes."""
RANK, RANKS, MEET, WAIT = "EYAS_RANK", "EYAS_RANKS", "EYAS_MEET", "EYAS_PATIENCE"
LEFT = 3
"""The exit code of a rank that lost the others."""
