"""How a model does, after each epoch, on rows that it isn't trained on.

They are a share of the rows to train on, drawn by a hash of each row and the seed: so the holdout that gates judge by is never looked at.
Their negatives are the same after every epoch, so that losses can be compared. What of the features is fitted (vocabularies, target
encoding) was fitted on all rows to train on, these among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.data.stable_hash import stable_hash
from pipelines.evaluation.metrics import auc
from pipelines.loaders.batches import Batches
from pipelines.loaders.tables import Codes
from shared.domain.errors import Invalid

_PARTS = 1 << 20
_ROW_GROUP = 65_536
_FACTORS = (0xD6E8FEB86659FD93, 0x9FB21C651E98DF25, 0xA24BAED4963EE407, 0x9E3779B97F4A7C15)
"""Odd ones, so that sums of products tell rows apart; they wrap around."""
_LEAST = 1e-7
"""Of a probability, as Keras' own loss has it."""


@dataclass
class Validation:
    batches: Batches
    score: Callable[[Codes], NDArray[np.float32]]
    losses: list[float] = field(default_factory=list)
    aucs: list[float] = field(default_factory=list)
    """NaN where all rows are of one label."""

    @property
    def metrics(self) -> dict[str, float]:
        """After the last epoch."""
        found = {"train.validation_loss": self.losses[-1], "train.validation_auc": self.aucs[-1]}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @property
    def facts(self) -> dict[str, Any]:
        said = {"losses": self.losses, "aucs": self.aucs}
        return {"rows": self.batches.rows_per_epoch()} | {
            name: [round(value, 6) if math.isfinite(value) else None for value in values] for name, values in said.items()
        }

    def __call__(self) -> str:
        """Looks, and says what it has seen."""
        found = [(batch.labels, self.score(batch.columns)) for batch in self.batches.epoch(0)]
        labels, scores = (np.concatenate(one) for one in zip(*found, strict=True))
        right = np.clip(np.where(labels > 0, scores, 1 - scores).astype(np.float64), _LEAST, 1 - _LEAST)
        self.losses.append(float(-np.log(right).mean()))
        area = auc(labels > 0, scores)
        self.aucs.append(math.nan if area is None else area)
        return f"validation loss {self.losses[-1]:.4f}" + ("" if area is None else f", AUC {area:.4f}")


def hold_out(rows: Path, share: float, seed: int, folder: Path) -> tuple[Path, Path]:
    """Two files of the rows: those to train on, and those to look at."""
    row = pl.lit(seed * _FACTORS[0] % 2**64, pl.UInt64)
    for name, factor in zip(("user", "item", "time"), _FACTORS[1:], strict=True):
        row = row + pl.col(name).cast(pl.Int64).reinterpret(signed=False) * pl.lit(factor, pl.UInt64)
    mixed = stable_hash(row.reinterpret(signed=True))
    held = mixed % _PARTS < round(share * _PARTS)
    paths = folder / "rest.parquet", folder / "held.parquet"
    for path, kept in zip(paths, (~held, held), strict=True):
        pl.scan_parquet(rows).filter(kept).sink_parquet(path, row_group_size=_ROW_GROUP, compression="lz4", statistics=False)
        if not pl.scan_parquet(path).select(pl.len()).collect().item():
            raise Invalid(f"model.train.validation: {share:g} of so few rows leaves none on one side: choose another share, or 0")
    return paths
