"""Sampled negatives and their features, made on the device that trains: stages of as_torch, by the law of the loader's own stage.

Of each positive some rows of the same user and moment with another item, drawn evenly from the catalogue; with `liked`, evenly from what
the user didn't like, in one draw: a number below how many those are says which of them it is, so nothing is drawn again. Who liked the
whole catalogue has no negative: the positive stands again in each of its places.
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
    """What each user liked of `items` items: 8 bytes a pair, 16 a user."""

    items: int
    users: Tensor
    """That liked anything, in order."""
    starts: Tensor
    keys: Tensor
    """Of each pair, in order of user and item: the user's place, and how many items before this one the user didn't like."""

    @classmethod
    def of(cls, users: Any, items: Any, catalogue: int, device: Any = "cpu") -> TensorLiked:
        """Of pairs in any order, as often as they come. Items are numbers from 0 to `catalogue`."""
        pairs = torch.stack([torch.as_tensor(users, dtype=torch.int64), torch.as_tensor(items, dtype=torch.int64)])
        if pairs.shape[1] and (int(pairs[1].min()) < 0 or int(pairs[1].max()) >= catalogue):
            raise Invalid(f"liked: an item is no number from 0 to {catalogue - 1}, the last one of the catalogue")
        distinct_users, place = torch.unique(pairs[0].to(device), return_inverse=True)
        codes = torch.unique(place * catalogue + pairs[1].to(device))  # in order
        place = codes // max(1, catalogue)
        starts = torch.searchsorted(place, torch.arange(len(distinct_users) + 1, device=codes.device))
        before = torch.arange(len(codes), device=codes.device) - starts[place]
        return cls(catalogue, distinct_users, starts, place * (catalogue + 1) + codes % max(1, catalogue) - before)

    def others(self, users: Tensor, random: Any) -> tuple[Tensor, Tensor]:
        """An item for each that its user didn't like, all of them equally likely, and whether there is any."""
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
    """A stage. Items are numbers from 0 to `items`."""

    items: int
    each: int
    """Of a positive."""
    item: str = "item_row"
    label: str = "label"
    """Above 0 where a row is a positive. A batch without this column is positives alone, and gets it."""
    user: str = "user"
    liked: TensorLiked | None = None
    """None: drawn items aren't verified."""

    def __call__(self, columns: dict[str, Tensor], random: Any) -> dict[str, Tensor]:
        """In a random order, so that a part of the batch is as good as the whole."""
        rows, device = len(columns[self.item]), columns[self.item].device
        if self.label not in columns:
            columns = columns | {self.label: torch.ones(rows, device=device)}
        for name, column in columns.items():
            if len(column) != rows:
                raise Invalid(f"negatives: column '{name}' has no row a row: say lists='padded', or gather it by item afterwards")
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
    """A stage: of each row's item (or user) the features that its number has in tables of a row a number."""

    by: str
    tables: Mapping[str, Tensor]

    def __call__(self, columns: dict[str, Tensor], random: Any) -> dict[str, Tensor]:
        rows = columns[self.by].long()
        return columns | {name: table.index_select(0, rows) for name, table in self.tables.items()}
