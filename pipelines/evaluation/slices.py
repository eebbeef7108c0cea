"""Slices: parts of the cases that a mean hides, such as users with few likes, unpopular items, and values of columns.

The bounds of cold, heavy, head and tail follow from the data: a fifth at either end, with ties. So a slice is not empty because a fixed
threshold does not fit the data, and each slice states its bound.
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
    """Describes the slice for people."""
    chosen: Chosen
    """Mask over the cases."""


def standard(owners: Ints, of_users: Ints, of_targets: Ints, catalogue: Ints) -> tuple[Slice, ...]:
    """Returns the standard slices. `of_users`: number of known likes of each user with a case. `of_targets`: number of training likes of
    each case's item, -1 for an unknown item. `catalogue`: the same number for all items."""
    ordered = np.sort(of_users)
    reach = max(1, round(END * len(ordered)))
    low, high = int(ordered[reach - 1]), int(ordered[-reach])
    user_likes = of_users[owners]
    counts = np.sort(catalogue)
    part = max(1, round(END * len(counts)))
    rare, often = int(counts[part - 1]), int(counts[-part])
    return (
        Slice("cold_users", f"users with at most {low:,} known positives", user_likes <= low),
        Slice("heavy_users", f"users with at least {high:,} known positives", user_likes >= high),
        Slice("cold_items", f"items with at most {rare:,} training positives", of_targets <= rare),
        Slice("head_items", f"items with at least {often:,} training positives", of_targets >= often),
        Slice("tail_items", f"items with fewer than {often:,} training positives", of_targets < often),
    )


def by_expression(text: str, of_users: Ints, of_items: Ints) -> Slice:
    """Returns the slice of an expression; `of_users` and `of_items` are the counts of each case's user and item."""
    counts = {"user_history": of_users, "item_history": np.maximum(of_items, 0)}
    tests = [ORDERS[test.order](counts[test.count], test.bound) for test in parse_count_tests(text)]
    return Slice(text, f"cases with {text}", np.logical_and.reduce(tests))


def by_values(column: str, values: pl.Series, rows: Ints, most: int = MOST_VALUES) -> tuple[Slice, ...]:
    """Returns a slice for each of the most frequent values. `values`: the values of each table row. `rows`: each case's row, or -1."""
    counts = np.bincount(rows[rows >= 0], minlength=len(values))
    flat = (
        pl.DataFrame({"value": values, "row": np.arange(len(values)), "cases": counts})
        .filter(pl.col("cases") > 0)
        .explode("value", empty_as_null=False)
    )
    frequent = flat.drop_nulls().group_by("value").agg(pl.col("cases").sum()).sort("cases", "value", descending=[True, False])
    slices = []
    for value in frequent["value"].head(most):
        there = np.zeros(len(values) + 1, bool)
        there[flat.filter(pl.col("value") == value)["row"].to_numpy()] = True
        slices.append(Slice(f"{column}={value}", f"{column} is {value}", there[rows]))
    return tuple(slices)
