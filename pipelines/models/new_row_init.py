"""First vectors of the codes that a warm run's parent did not know, by one rule for all families.

`random` begins as a full run does. `mean` begins at the mean of the parent's known rows, `unknown` at the parent's vector for unknown keys.
Both add noise of a tenth of the known rows' spread, so that new rows differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.features.columns import FIRST, UNKNOWN
from shared.contracts.retraining import NewRows

NOISE = np.float32(0.1)
Floats = NDArray[np.float32]


def grown(old: Floats, begun: Floats, rule: NewRows) -> Floats:
    """Returns a table with the parent's rows first; `begun` is the whole table as the seed begins it, of which only the new rows count."""
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
