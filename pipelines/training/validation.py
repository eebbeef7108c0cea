"""Validation after each epoch, on rows that are not trained on.

Validation rows are a share of the training rows, chosen by a hash of the row and the seed: so the gates' holdout is never used. Negatives
are the same after every epoch, so that losses are comparable. Features (vocabularies, target encoding) are fitted on all training rows,
validation rows included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.data.stable_hash import stable_hash
from pipelines.evaluation.metrics import auc
from pipelines.inputs.batches import Batches
from pipelines.inputs.tables import Codes
from pipelines.training.ranking import Ranking
from shared.domain.errors import Invalid

_PARTS = 1 << 20
_ROW_GROUP = 65_536
_FACTORS = (0xD6E8FEB86659FD93, 0x9FB21C651E98DF25, 0xA24BAED4963EE407, 0x9E3779B97F4A7C15)
"""Odd factors, so that wrapped sums of products differ between rows."""
_LEAST = 1e-7
"""Smallest probability in the loss, as in Keras."""


@dataclass(frozen=True)
class Validation:
    batches: Batches
    score: Callable[[Codes], NDArray[np.float32]]
    ranking: Ranking | None = None
    """The ranking, if the spec compares epochs by it."""

    @property
    def rows(self) -> int:
        """Rows that a validation scores."""
        return self.batches.rows_per_epoch() + (self.ranking.batches.rows_per_epoch() if self.ranking is not None else 0)

    def __call__(self) -> dict[str, float]:
        """Validates. There is no AUC if all rows have the same label, and no loss if the scores are not probabilities."""
        labels, scores = self.scored()
        right = np.clip(np.where(labels > 0, scores, 1 - scores).astype(np.float64), _LEAST, 1 - _LEAST)
        area = auc(labels > 0, scores)
        values = {} if scores.min() < 0 or scores.max() > 1 else {"loss": float(-np.log(right).mean())}
        values |= {} if area is None else {"auc": area}
        return values | (self.ranking() if self.ranking is not None else {})

    def scored(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns labels and scores of all rows."""
        pairs = [(batch.labels, self.score(batch.columns)) for batch in self.batches.epoch(0)]
        labels, scores = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        return labels, scores


def describe_metrics(loss: float, looked: Mapping[str, float]) -> str:
    """Formats metrics as pairs: `loss=0.2912 validation_loss=0.3012 auc=0.8123 hr@10/99=0.4410`."""
    values = {"loss": loss} | {"validation_loss" if name == "loss" else name: value for name, value in looked.items()}
    return " ".join(f"{name}={value:.4f}" for name, value in values.items())


def hold_out(rows: Path, share: float, seed: int, folder: Path) -> tuple[Path, Path]:
    """Writes the training rows and the validation rows to two files."""
    row = pl.lit(seed * _FACTORS[0] % 2**64, pl.UInt64)
    for name, factor in zip(("user", "item", "time"), _FACTORS[1:], strict=True):
        row = row + pl.col(name).cast(pl.Int64).reinterpret(signed=False) * pl.lit(factor, pl.UInt64)
    mixed = stable_hash(row.reinterpret(signed=True))
    held_mask = mixed % _PARTS < round(share * _PARTS)
    paths = folder / "rest.parquet", folder / "held.parquet"
    for path, chosen in zip(paths, (~held_mask, held_mask), strict=True):
        pl.scan_parquet(rows).filter(chosen).sink_parquet(path, row_group_size=_ROW_GROUP, compression="lz4", statistics=False)
        if not pl.scan_parquet(path).select(pl.len()).collect().item():
            raise Invalid(
                f"model.train.validation: {share:g} leaves no rows to train on, or none to validate on: choose another share, or 0"
            )
    return paths
