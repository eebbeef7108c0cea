"""Where the vectors of codes begin that a warm run's parent didn't know: one rule for every family that keeps vectors by code.

`random` is what a full run begins with. `mean` is the mean of those that the parent knew, `unknown` what it has learned of strangers; noise
of a tenth of the known rows' spread tells new rows apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, UNKNOWN
from shared.contracts.retraining import NewRows

NOISE = np.float32(0.1)
Floats = NDArray[np.float32]


def grown(old: Floats, begun: Floats, rule: NewRows) -> Floats:
    """A table with its parent's rows first. `begun`: the whole table as the seed begins it; its first rows are not looked at."""
    fresh = begun[len(old) :]
    if not len(fresh):
        return old.copy()
    known_rows = old[FIRST:] if len(old) > FIRST else old
    if rule == "random" or not len(known_rows):
        return np.concatenate([old, fresh])
    place = old[UNKNOWN] if rule == "unknown" and len(old) > UNKNOWN else known_rows.mean(axis=0)
    spread = float(fresh.std())
    noise = fresh * (NOISE * known_rows.std(axis=0) / np.float32(spread)) if spread else np.zeros_like(fresh)
    return np.concatenate([old, (place + noise).astype(old.dtype)])
