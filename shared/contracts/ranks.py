"""Environment and exit codes of the ranks of a distributed training (ADR 33).

A train or refit stage with `model.train.processes: N` in its spec has N equal processes: ranks 0 to N-1. Their environment has:

    EYAS_RANK      number of the rank, from 0
    EYAS_RANKS     number of ranks, the spec's `processes`
    EYAS_MEET      host:port of rank 0, which listens there on all addresses; the others try to connect for up to 300 seconds
    EYAS_PATIENCE  seconds that a rank waits for another rank during training (120 if absent)

Each rank reads the same stage spec in its own scratch folder, fetches the inputs, and makes the same batches. The ranks coordinate at
EYAS_MEET (a TCP store). They exchange numbers directly, on ports that the system chooses, so the ranks of a stage must reach each other on
all ports. No other process needs to reach them.

Only rank 0 publishes: the manifest, checkpoints and progress. Its exit code is the stage's: 0 published, 2 rejected (the manifest has the
reason). The other ranks end with 0 after their part, before rank 0 publishes. A rank that loses another rank, or waits too long, ends with
LEFT (3) and one line on stderr; any other code is its own fault. No training continues with fewer ranks: the whole attempt is lost, and the
next attempt continues from rank 0's checkpoint.

A stage without EYAS_RANK starts its ranks as local processes (`pipelines.stages.launcher`).
"""

from __future__ import annotations

TRAINING = ("train", "refit")
"""Stages that run as `model.train.processes` processes."""
RANK, RANKS, MEET, WAIT = "EYAS_RANK", "EYAS_RANKS", "EYAS_MEET", "EYAS_PATIENCE"
LEFT = 3
"""Exit code of a rank that lost the other ranks."""
