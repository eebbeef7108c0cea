"""Training batches with rows, features and negatives on the training device: read once, drawn there in every epoch.

An epoch is a permutation of all rows, negatives included; a negative is its positive's row with a newly drawn item. A step gathers its
batch on the device by row number, without the host. Randomness follows from seed, epoch and step, so training can continue at any step with
the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from pipelines.features.operators.codes import Cross
from pipelines.features.prepared import FEATURE, FOLD
from pipelines.inputs.batch_stages import columns_of
from pipelines.inputs.batches import Batches, EpochPosition, TrainingBatch
from pipelines.inputs.tables import FeatureTable, array, stranger
from pipelines.loaders.adapters.pytorch.negatives import TensorLiked
from pipelines.loaders.adapters.pytorch.resident import generator, room
from shared.domain.errors import Invalid

Tensor = Any
SHARE = 0.5
"""Share of the device's memory for rows and an epoch's order."""


@dataclass(frozen=True)
class OnDeviceRows:
    """Training data on a device. `columns`: values by row; `item` and `user` contain rows of `items` and `users`."""

    columns: Mapping[str, Tensor]
    labels: Tensor
    item: Tensor
    items: Mapping[str, Tensor]
    drawable: Tensor
    """Rows of the items that can be drawn as negatives."""
    user: Tensor | None = None
    users: Mapping[str, Tensor] | None = None
    key: Tensor | None = None
    liked: TensorLiked | None = None
    """Likes by `key`; items are places in `drawable`."""
    blanks: tuple[Mapping[str, Tensor], ...] = ()
    """Values of an unknown user and of an unknown item."""

    @cached_property
    def positives(self) -> Tensor:
        return torch.nonzero(self.labels > 0).squeeze(1)

    def order(self, each: int, only: bool, shuffle: bool, seed: tuple[int, ...]) -> Tensor:
        """Returns an epoch's order of row numbers; higher numbers are negatives. `only`: leaves out rows that aren't positives."""
        rows, more, device = len(self.labels), len(self.positives) * each, self.labels.device
        begun = torch.cat([self.positives, torch.arange(rows, rows + more, device=device)]) if only else None
        if not shuffle:
            return torch.arange(rows + more, device=device) if begun is None else begun
        drawn = torch.randperm(rows + more if begun is None else len(begun), generator=generator(device, *seed), device=device)
        return drawn if begun is None else begun[drawn]

    def batch(self, places: Tensor, each: int, unknown: tuple[float, float], seed: tuple[int, ...]) -> tuple[dict[str, Tensor], Tensor]:
        random, rows = generator(places.device, *seed), len(self.labels)
        labels, item, source = self.labels, self.item, places
        if each:
            negative = places >= rows
            source = torch.where(negative, self.positives[((places - rows) // each).clamp_(min=0)], places)
            drawn, there = self._drawn(source, random)
            negative &= there
            item, labels = torch.where(negative, drawn, item[source].long()), torch.where(negative, 0.0, labels[source])
        else:
            item, labels = item[source].long(), labels[source]
        columns = {name: column.index_select(0, item) for name, column in self.items.items()}
        if self.users is not None and self.user is not None:
            user_rows = self.user[source].long()
            columns |= {name: column.index_select(0, user_rows) for name, column in self.users.items()}
        columns |= {name: column.index_select(0, source) for name, column in self.columns.items()}
        return self._hidden(columns, unknown, random), labels

    def _drawn(self, source: Tensor, random: Any) -> tuple[Tensor, Tensor]:
        if self.liked is not None and self.key is not None:
            drawn, there = self.liked.others(self.key[source], random)
            return self.drawable[drawn], there
        drawn = self.drawable[torch.randint(0, len(self.drawable), source.shape, generator=random, device=source.device)]
        return drawn, torch.ones_like(drawn, dtype=torch.bool)

    def _hidden(self, columns: dict[str, Tensor], unknown: tuple[float, float], random: Any) -> dict[str, Tensor]:
        """Shows shares of the rows with an unknown user, and with an unknown item."""
        for share, blank in zip(unknown, self.blanks, strict=False):
            hidden = torch.rand(len(next(iter(columns.values()))), generator=random, device=self.labels.device) < share
            for name, value in blank.items():
                column = columns[name]
                columns[name] = torch.where(hidden.view(-1, *[1] * (column.ndim - 1)), value, column)
        return columns

    @property
    def size(self) -> int:
        """Size in bytes."""
        there = [*self.columns.values(), *self.items.values(), *(self.users or {}).values(), self.labels, self.item]
        return sum(tensor.numel() * tensor.element_size() for tensor in there)


@dataclass(frozen=True)
class OnDevice(Batches):
    """Batches drawn on a device. `likes_path`: rows whose liked items are never negatives, if batches verify likes."""

    device: Any = "cpu"
    likes_path: Path | None = None

    @classmethod
    def of(cls, batches: Batches, device: Any, likes_path: Path) -> OnDevice:
        return cls(**{field.name: getattr(batches, field.name) for field in fields(Batches)}, device=device, likes_path=likes_path)

    def placed(self, number: int, start: EpochPosition = EpochPosition()) -> Iterator[tuple[TrainingBatch, EpochPosition]]:  # noqa: B008  a value
        rows = self.rows
        order = rows.order(self.negatives, self.positives, self.shuffle, (self.seed, 71, number))
        for step in range(start.batch, -(-len(order) // self.batch_size)):
            places = order[step * self.batch_size : (step + 1) * self.batch_size]
            unknown = self.unknown_users, self.unknown_items
            columns, labels = rows.batch(places, self.negatives, unknown, (self.seed, 73, number, step))
            yield TrainingBatch(columns, labels), EpochPosition(step + 1)

    @cached_property
    def rows(self) -> OnDeviceRows:
        """Rows, read to the device."""
        frame = pl.read_parquet(self.path, columns=self._wanted())
        steps = self.rows_per_epoch()
        takes = frame.estimated_size() + 3 * 8 * steps  # an order and the memory of its permutation
        free = room(torch.device(self.device), SHARE)
        if takes > free:
            raise Invalid(
                f"model.train.resident: {len(frame):,} rows and an order of {steps:,} take about {takes / 2**30:.3g} GiB, but half of the "
                f"free memory of '{self.device}' is {free / 2**30:.3g} GiB: leave resident out"
            )
        context = {
            feature.name: self._there(array(frame[f"{FEATURE}{feature.name}"], feature.kind)) for feature in self.graph.side("context")
        }
        return OnDeviceRows(
            context | {self.graph.user: self._there(array(frame["user_code"], "code"))},
            self._there(array(frame["label"] * frame["weight"] if "weight" in frame.columns else frame["label"], "float32")),
            self._there(frame["item_row"].to_numpy().astype(np.int32)),
            {name: self._there(column) for name, column in self.items.columns.items()},
            self._there(self.drawable_rows),
            None if self.users is None else self._there(frame["user_row"].to_numpy().astype(np.int32)),
            None if self.users is None else {name: self._there(column) for name, column in self.users.columns.items()},
            self._there(frame["user"].to_numpy().astype(np.int64)) if self.liked is not None else None,
            self._liked() if self.liked is not None else None,
            tuple(
                {name: self._there(value) for name, value in stranger(self.graph, key).items()}
                for key in (self.graph.user, self.graph.item)
            )
            if self.unknown_users or self.unknown_items
            else (),
        )

    def _wanted(self) -> list[str]:
        there = list(pl.scan_parquet(self.path).collect_schema())
        columns = columns_of(self.graph, there)
        crosses = [operator.name for operator in self.graph.operators if isinstance(operator, Cross) and operator.outputs[0].side == "pair"]
        if crosses:
            raise Invalid(
                f"model.train.resident: '{crosses[0]}' is a cross of user and item, made on the host: leave out the cross or resident"
            )
        if _apart(self.items) or _apart(self.users) or any(name.startswith(FOLD) for name in columns):
            raise Invalid("model.train.resident: target encoding is made on the host: leave out target encoding or resident")
        return [*columns, *(["user"] if self.liked is not None else [])]

    def _liked(self) -> TensorLiked:
        assert self.likes_path is not None
        pairs = pl.scan_parquet(self.likes_path).filter(pl.col("label") > 0).select("user", "item_row").collect(engine="streaming")
        drawable = self.drawable_rows
        places = np.searchsorted(drawable, pairs["item_row"].to_numpy())
        return TensorLiked.of(np.array(pairs["user"], np.int64), places, len(drawable), self.device)

    def _there(self, values: Any) -> Tensor:
        return torch.from_numpy(np.array(values)).to(self.device)


def _apart(table: FeatureTable | None) -> bool:
    return table is not None and bool(table.apart)
