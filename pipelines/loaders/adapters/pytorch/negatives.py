"""Sampled negatives and their features, made on the training device: stages of as_torch, with the distribution of the loader's own stage.

Each positive gets rows with the same user and moment and another item, drawn uniformly from the catalogue. With `liked`, items are drawn
uniformly from those that the user did not like, in a single draw: a number below their count selects the item. A user who liked the whole
catalogue has no negatives: the positive is repeated instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pipelines.loaders.adapters.pytorch.tensors import Tensor
from shared.domain.errors import Invalid

_MANY = 2**62


@dataclass(frozen=True)
class TensorLiked:
    """The liked items of each user, of `items` items in total: 8 bytes a pair, 16 a user."""

    items: int
    users: Tensor
    """Users with likes, in order."""
    starts: Tensor
    keys: Tensor
    """Key of each pair, in order of user and item: the user's place, and the number of items before this item that the user did not like.
    """

    @classmethod
    def of(cls, users: Any, items: Any, catalogue: int, device: Any = "cpu") -> TensorLiked:
        """Makes the table from pairs in any order, repeats included; items are numbers from 0 to `catalogue` - 1."""
        pairs = torch.stack([torch.as_tensor(users, dtype=torch.int64), torch.as_tensor(items, dtype=torch.int64)])
        if pairs.shape[1] and (int(pairs[1].min()) < 0 or int(pairs[1].max()) >= catalogue):
            raise Invalid(f"liked: items must be numbers from 0 to {catalogue - 1}, the last item of the catalogue")
        distinct_users, place = torch.unique(pairs[0].to(device), return_inverse=True)
        codes = torch.unique(place * catalogue + pairs[1].to(device))  # sorted
        place = codes // max(1, catalogue)
        starts = torch.searchsorted(place, torch.arange(len(distinct_users) + 1, device=codes.device))
        before = torch.arange(len(codes), device=codes.device) - starts[place]
        return cls(catalogue, distinct_users, starts, place * (catalogue + 1) + codes % max(1, catalogue) - before)

    def others(self, users: Tensor, random: Any) -> tuple[Tensor, Tensor]:
        """Returns for each user a uniformly drawn item that the user did not like, and whether there is any."""
        drawn = torch.randint(0, _MANY, users.shape, generator=random, device=users.device)
        if not len(self.users):
            return drawn % self.items, torch.ones_like(drawn, dtype=torch.bool)
        place = torch.searchsorted(self.users, users.long()).clamp_(max=len(self.users) - 1)
        has_likes = self.users[place] == users
        free = self.items - torch.where(has_likes, self.starts[place + 1] - self.starts[place], 0)
        drawn %= free.clamp(min=1)
        liked_before = torch.searchsorted(self.keys, place * (self.items + 1) + drawn, right=True) - self.starts[place]
        return drawn + torch.where(has_likes, liked_before, 0), free > 0


@dataclass(frozen=True)
class TensorNegatives:
    """Stage that adds negatives; items are numbers from 0 to `items` - 1."""

    items: int
    each: int
    """Negatives per positive."""
    item: str = "item_row"
    label: str = "label"
    """Name of the label column. A label above 0 marks a positive. A batch without the column has only positives; the column is added."""
    user: str = "user"
    liked: TensorLiked | None = None
    """None: drawn items are not verified."""

    def __call__(self, columns: dict[str, Tensor], random: Any) -> dict[str, Tensor]:
        """Returns the rows in random order, so that any part of the batch is representative."""
        rows, device = len(columns[self.item]), columns[self.item].device
        if self.label not in columns:
            columns = columns | {self.label: torch.ones(rows, device=device)}
        for name, column in columns.items():
            if len(column) != rows:
                raise Invalid(f"negatives: column '{name}' does not have one entry per row; set lists='padded', or gather it by item later")
        positive = torch.nonzero(columns[self.label] > 0).squeeze(1)
        source = torch.cat([torch.arange(rows, device=device), positive.repeat_interleave(self.each)])
        order = torch.randperm(len(source), generator=random, device=device)
        source = source[order]
        gathered = {name: column.index_select(0, source) for name, column in columns.items()}
        negative = order >= rows
        if self.liked is None:
            drawn = torch.randint(0, self.items, source.shape, generator=random, device=device)
        else:
            drawn, there = self.liked.others(gathered[self.user], random)
            negative &= there
        items, labels = gathered[self.item], gathered[self.label]
        return gathered | {
            self.item: torch.where(negative, drawn.to(items.dtype), items),
            self.label: torch.where(negative, torch.zeros_like(labels), labels),
        }


@dataclass(frozen=True)
class Gather:
    """Stage that adds features from tables, by the number of each row's item (or user)."""

    by: str
    tables: Mapping[str, Tensor]

    def __call__(self, columns: dict[str, Tensor], random: Any) -> dict[str, Tensor]:
        rows = columns[self.by].long()
        return columns | {name: table.index_select(0, rows) for name, table in self.tables.items()}
