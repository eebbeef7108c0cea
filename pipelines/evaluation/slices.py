"""Parts of the cases that means hide: users of whom little is known, items that hardly anybody met, and values of columns.

What is cold, heavy, head or tail follows from the data: a fifth at either end, and whoever is level with its last. So no slice is empty
because a threshold was made for other data, and each says its own bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shared.domain.case_slices import parse_count_tests
from shared.domain.expressions import ORDERS

Ints = NDArray[np.int64]
Chosen = NDArray[np.bool_]
END = 0.2
MOST_VALUES = 20


@dataclass(frozen=True)
class Slice:
    name: str
    rule: str
    """Who is in it, for people."""
    chosen: Chosen
    """Of the cases."""


def standard(owners: Ints, of_users: Ints, of_targets: Ints, catalogue: Ints) -> tuple[Slice, ...]:
    """`of_users`: how much is known of each user with a case; `of_targets`: how often each case's item is in the rows to train on, -1 where
    it isn't known at all; `catalogue`: the same of every item that there is."""
    ordered = np.sort(of_users)
    reach = max(1, round(END * len(ordered)))
    low, high = int(ordered[reach - 1]), int(ordered[-reach])
    user_likes = of_users[owners]
    counts = np.sort(catalogue)
    part = max(1, round(END * len(counts)))
    rare, often = int(counts[part - 1]), int(counts[-part])
    return (
        Slice("cold_users", f"users with at most {low:,} known likes", user_likes <= low),
        Slice("heavy_users", f"users with at least {high:,} known likes", user_likes >= high),
        Slice("cold_items", f"items with at most {rare:,} likes to learn from", of_targets <= rare),
        Slice("head_items", f"items with at least {often:,} likes to learn from", of_targets >= often),
        Slice("tail_items", f"items with fewer than {often:,} likes to learn from", of_targets < often),
    )


def by_expression(text: str, of_users: Ints, of_items: Ints) -> Slice:
    """`of_users` and `of_items`: of each case, what is known of its user and how often its item is in the rows to train on."""
    counts = {"user_history": of_users, "item_history": np.maximum(of_items, 0)}
    tests = [ORDERS[test.order](counts[test.count], test.bound) for test in parse_count_tests(text)]
    return Slice(text, f"cases with {text}", np.logical_and.reduce(tests))


def by_values(column: str, values: pl.Series, rows: Ints, most: int = MOST_VALUES) -> tuple[Slice, ...]:
    """A slice for each of the most frequent values. `values`: of each row of a table several, or none; `rows`: of each case its row, -1
    where it has none."""
    counts = np.bincount(rows[rows >= 0], minlength=len(values))
    flat = pl.DataFrame({"value": values, "row": np.arange(len(values)), "cases": counts}).filter(pl.col("cases") > 0).explode("value")
    frequent = flat.drop_nulls().group_by("value").agg(pl.col("cases").sum()).sort("cases", "value", descending=[True, False])
    slices = []
    for value in frequent["value"].head(most):
        there = np.zeros(len(values) + 1, bool)
        there[flat.filter(pl.col("value") == value)["row"].to_numpy()] = True
        slices.append(Slice(f"{column}={value}", f"{column} is {value}", there[rows]))
    return tuple(slices)
