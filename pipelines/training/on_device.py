"""Validation on the training device: rows are prepared and copied to the device once, and scored and ranked there.

Each validation returns an array: the scores of all rows, or the rank of each case, equal to `Validation` and `Ranking` on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.inputs.batches import Batches
from pipelines.training.ranking import Ints, Ranking
from pipelines.training.validation import Validation

Tensor = Any
Scores = Callable[[Mapping[str, Tensor]], Tensor]
AT_ONCE = 1 << 20
"""Rows per scoring pass."""
SHARE = 0.1
"""Share of the device's free memory that the rows may take."""


@dataclass(frozen=True)
class DeviceRows:
    columns: Mapping[str, Tensor]
    labels: NDArray[np.float32]

    def scored(self, scores: Scores) -> Tensor:
        import torch

        return torch.cat([scores(part) for part in parts(self.columns, AT_ONCE)])


def parts(columns: Mapping[str, Tensor], rows: int) -> Iterator[dict[str, Tensor]]:
    for start in range(0, len(next(iter(columns.values()))), rows):
        yield {name: column[start : start + rows] for name, column in columns.items()}


def keep(batches: Batches, device: Any) -> DeviceRows | None:
    """Copies the rows to the device; returns None if they do not fit, so that each validation prepares them again."""
    import torch

    from pipelines.loaders.adapters.pytorch.resident import room

    pieces, labels, free = [], [], room(torch.device(device), SHARE)
    for batch in batches.epoch(0):
        there = {name: torch.from_numpy(np.array(column)).to(device) for name, column in batch.columns.items()}
        free -= 2 * sum(tensor.numel() * tensor.element_size() for tensor in there.values())  # twice, because concatenation copies them
        if free < 0:
            return None
        pieces.append(there)
        labels.append(batch.labels)
    return DeviceRows({name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}, np.concatenate(labels))


@dataclass(frozen=True)
class ValidationThere(Validation):
    device_rows: DeviceRows | None = None
    scores: Scores | None = None

    def scored(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        assert self.device_rows is not None and self.scores is not None
        return self.device_rows.labels, self.device_rows.scored(self.scores).cpu().numpy()


@dataclass(frozen=True)
class RankingThere(Ranking):
    device_rows: DeviceRows | None = None
    scores: Scores | None = None

    def ranks(self) -> NDArray[np.float64]:
        assert self.device_rows is not None and self.scores is not None
        ranks: NDArray[np.float64] = self._cases.ranks(self.device_rows.scored(self.scores)).cpu().numpy()
        return ranks

    @cached_property
    def _cases(self) -> PlacedCases:
        assert self.device_rows is not None
        device = next(iter(self.device_rows.columns.values())).device
        return PlacedCases.of(self.starts, len(self.device_rows.labels), device)


@dataclass(frozen=True)
class PlacedCases:
    """Rows by case: the like first, then its negatives."""

    starts: Tensor
    owners: Tensor
    """Case of each row."""

    @classmethod
    def of(cls, starts: Ints, rows: int, device: Any) -> PlacedCases:
        import torch

        counts = np.diff(np.append(starts, rows))
        owners = np.repeat(np.arange(len(starts)), counts)
        return cls(torch.from_numpy(np.array(starts, np.int64)).to(device), torch.from_numpy(owners).to(device))

    def ranks(self, scores: Tensor) -> Tensor:
        """Returns the ranks from 1; equal scores share the middle rank."""
        import torch

        liked = scores.index_select(0, self.starts).index_select(0, self.owners)
        none = torch.zeros(len(self.starts), dtype=torch.int64, device=scores.device)
        above, equal = (none.index_add(0, self.owners, comparison.long()) for comparison in (scores > liked, scores == liked))
        return 1 + above.double() + (equal.double() - 1) / 2


def looked_there(look: Validation, step: Any, device: Any) -> Validation:
    """Returns the same validation with its rows on the device, as far as they fit."""
    ranking = look.ranking
    if ranking is not None and (ranking_rows := keep(ranking.batches, device)) is not None:
        ranking = RankingThere(ranking.batches, ranking.starts, ranking.score, ranking.names, ranking_rows, step.scores)
    rows = keep(look.batches, device)
    if rows is None:
        return Validation(look.batches, look.score, ranking)
    return ValidationThere(look.batches, look.score, ranking, rows, step.scores)
