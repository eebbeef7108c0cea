"""Guesses the user, item, time and label columns by their usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Role = Literal["user", "item", "time", "label"]
COLUMN_NAMES: Mapping[Role, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "customer", "customerid", "visitor", "visitorid"),
    "item": ("item", "itemid", "movieid", "productid", "articleid", "bookid", "iid"),
    "time": ("timestamp", "time", "at", "datetime", "date", "ts"),
    "label": ("rating", "label", "value", "score", "stars"),
}
"""Lower case, without underscores, most likely first."""


def column_called(role: Role, names: Sequence[str]) -> str | None:
    """Returns the column with the most likely name; a type after a colon is ignored."""
    plain = {name.split(":")[0].replace("_", "").lower(): name for name in reversed(names)}
    return next((plain[alias] for alias in COLUMN_NAMES[role] if alias in plain), None)
