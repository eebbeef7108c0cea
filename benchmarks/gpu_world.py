"""Likes of ml-20m's shape on a device: as many users, items and likes, every user with at least twenty, by a power law and by tastes.

A user's items are drawn without replacement: popular ones sooner, those of its own taste sooner still. One of them is held out; beside it
stand a hundred that the user never met. `scale` takes that share of users and likes, and its square root of items, so that users still
have most of the catalogue unmet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

USERS, ITEMS, LIKES = 138_493, 26_744, 20_000_263
LEAST, AGAINST, TASTES, OWN = 20, 100, 20, 12.0
_CELLS = 1 << 25
Tensor = Any


@dataclass(frozen=True)
class World:
    users: int
    items: int
    user: Tensor
    item: Tensor
    """Of each like that is trained on."""
    held: Tensor
    """Of each user the item that is held out."""
    against: Tensor
    """[users, AGAINST]"""

    @property
    def asked(self) -> dict[str, Tensor]:
        """Rows to score: of each user the held-out item, then the others."""
        import torch

        users = torch.arange(self.users, dtype=torch.int32, device=self.user.device)
        items = torch.cat([self.held[:, None], self.against], 1)
        return {"user": users.repeat_interleave(items.shape[1]), "item": items.reshape(-1)}


def size(scale: float) -> tuple[int, int, int]:
    users = max(50, round(USERS * scale))
    return users, max(4 * AGAINST, round(ITEMS * scale**0.5)), max(25 * users, round(LIKES * scale))


def counts(users: int, items: int, likes: int) -> NDArray[np.int64]:
    """Likes of each user, the most first: a power law above the least, up to a third of the catalogue."""
    shape, most = ((np.arange(users) + 0.5) / users) ** -0.6, items // 3 - LEAST
    low, high = 0.0, float(likes)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * shape, most).sum() < likes - LEAST * users else (low, middle)
    found: NDArray[np.int64] = LEAST + np.floor(np.minimum(low * shape, most)).astype(np.int64)
    short = likes - int(found.sum())
    room = np.flatnonzero(found < LEAST + most)
    found[room[np.arange(short) % len(room)]] += 1
    return found


def world(device: Any, scale: float, seed: int = 1) -> World:
    import torch

    users, items, likes = size(scale)
    random = torch.Generator(device).manual_seed(seed)
    popular = -0.8 * torch.log(torch.arange(items, device=device) + 10.0)[torch.randperm(items, generator=random, device=device)]
    taste = torch.arange(items, device=device) % TASTES
    many = torch.from_numpy(counts(users, items, likes)).to(device)
    parts, step = [], max(1, _CELLS // items)
    for start in range(0, users, step):
        mine = torch.arange(start, min(start + step, users), device=device)
        drawn = torch.rand((len(mine), items), generator=random, device=device).clamp_(min=1e-20)
        own = (taste == (mine % TASTES)[:, None]).float() * float(np.log(OWN))
        here = many[mine]
        chosen = (popular + own - torch.log(-torch.log(drawn))).topk(int(here.max()), dim=1).indices
        there = torch.arange(chosen.shape[1], device=device) < here[:, None]
        at = (torch.rand(len(mine), generator=random, device=device) * here).long()[:, None]
        held = chosen.gather(1, at)
        free = torch.rand((len(mine), items), generator=random, device=device)
        rows = mine[:, None].expand_as(chosen)
        free[rows[there] - start, chosen[there]] = -1.0
        against = free.topk(AGAINST, dim=1).indices
        there.scatter_(1, at, False)
        parts.append((rows[there].int(), chosen[there].int(), held[:, 0].int(), against.int()))
    user, item, held, against = (torch.cat(one) for one in zip(*parts, strict=True))
    return World(users, items, user, item, held, against)
