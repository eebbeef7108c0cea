"""A small world of tastes, without more than who likes what."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.models.popularity_model import PopularityFamily

USERS, ITEMS, GROUPS = 80, 150, 3


def likes(seed: int = 1) -> pl.DataFrame:
    """Users like the items of their own group, nearly always; items get rarer."""
    random = np.random.default_rng(seed)
    user, item = (side.ravel() for side in np.meshgrid(np.arange(USERS), np.arange(ITEMS), indexing="ij"))
    chance = np.where(user % GROUPS == item % GROUPS, 0.75, 0.02) * (1 - item / (2 * ITEMS))
    order = random.permutation(np.flatnonzero(random.random(len(user)) < chance))
    return pl.DataFrame({"user": user[order], "item": item[order]})


class Again(PopularityFamily):
    """A family of somebody's own: popularity once more."""

    name = "tests.support.taste_table:Again"
